//! What several commands need of a cluster that they only read.
//!
//! | module | holds |
//! |---|---|
//! | `connection` | the options `--kubeconfig` and `--context`, and the policies, exceptions and settings behind them |
//! | `admission_simulation` | what the webhooks would do to a write, for `plan` and `adopt` |
//! | `chart_lookup` | what `lookup` in charts finds |
//! | `policy_status` | the conditions that a stored policy does not meet |
//! | `competing_engines` | Kyverno and KubeMod, recognized by the images of their Deployments |
//! | `orphaned_webhooks` | webhook configurations that they leave behind, which would deny requests |

pub(crate) mod admission_simulation;
pub(crate) mod chart_lookup;
pub(crate) mod competing_engines;
pub(crate) mod connection;
pub(crate) mod orphaned_webhooks;
pub(crate) mod policy_status;
