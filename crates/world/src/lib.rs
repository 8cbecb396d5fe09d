//! A cluster in one thread, in logical time: the API server of the sandbox, replicas of the live process, built-in
//! controllers, and whoever acts from outside.
//!
//! ```text
//! user ─▶ World::apply ─▶ Server ─▶ webhooks ─▶ Desk of a replica (the same rules as in `kiln run`)
//!                           │
//!          World::step ─▶ parts of the replicas: policies, webhooks, controller, status, reports, cleanup …
//!                           │ nothing to do?
//!                           └▶ the clock jumps to the next time at which something is to be done
//! ```
//!
//! Pure: no sockets, no threads, no clock of the machine; the same seed gives the same world, and it compiles for WebAssembly.
//! What a replica decides is in `kiln-replica`, `kiln-controller`, `kiln-admission`, `kiln-reports` and `kiln-cleanup`, which
//! `kiln run` runs as well; here is only how they are connected.
//!
//! | module | holds |
//! |---|---|
//! | `world` | [`World`]: acting on it, letting time pass, seeing what happened |
//! | `replica`, `parts`, `around` | one process: its parts, when they have their turns, and what they share |
//! | `core`, `clock` | what everything shares: server, time, chance |
//! | `settling` | the turns of built-in controllers |
//! | `admission` | what answers webhooks in the middle of a write |
//! | `connection`, `admin` | ways to the server, with the faults of a story |
//! | `follower`, `discovery`, `view` | watches, kinds, and what rules see |
//! | `faults`, `timeline` | what goes wrong, and what happened |
//!
//! ```
//! use kiln_value::value;
//! use kiln_world::{World, WorldImage, WorldOptions};
//!
//! let image = WorldImage::with_engine(&[], None)?;
//! let mut world = World::new(&WorldOptions::default(), &image);
//! let namespace = value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
//! world.apply(&namespace, "default")?;
//! let deadline = world.now() + 30_000;
//! assert!(world.run_until_quiet(deadline));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod admin;
mod admission;
mod around;
mod clock;
mod connection;
mod core;
mod discovery;
mod faults;
mod follower;
mod parts;
mod replica;
mod settling;
mod timeline;
mod view;
mod world;

pub use kiln_apiserver::{ApiRequest, Authorization, Response};
pub use kiln_cluster::ObjectPatch;

pub use clock::Chance;
pub use faults::FaultRates;
pub use timeline::{TimelineEntry, TimelineEvent};
pub use world::{Explanation, NotInstalled, Stepped, USUAL_START, World, WorldImage, WorldOptions};
