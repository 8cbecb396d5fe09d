//! Helm charts, rendered in the process: what `helm template` prints, as a pure function of the files of a chart, values
//! and [`ChartOptions`].
//!
//! Nothing is fetched, run or looked up: files come through [`ChartFiles`], objects through [`Lookup`], time and chance
//! through [`AmbientSources`]. What a chart may cost is bounded by [`ChartLimits`].
//!
//! | module | holds |
//! |---|---|
//! | `files`, `archive`, `ignore` | the files of a chart: a directory or a package, within limits, without a way out |
//! | `metadata`, `load` | `Chart.yaml`, and files to a tree of charts |
//! | `values` | how values are merged, and what becomes of nulls |
//! | `set_values` | values on a command line |
//! | `dependencies` | which subcharts are rendered, under which names; imported values |
//! | `schema` | `values.schema.json` |
//! | `capabilities` | versions of Kubernetes and of its APIs |
//! | `render` | templates to texts |
//! | `seed` | random values that follow from a text |
//! | `manifest` | texts to documents, hooks, and their order |
//! | [`repository`] | what repositories and registries answer |
//!
//! ```
//! use kiln_chart::{Chart, MemoryFiles, ChartOptions, render};
//! let files = MemoryFiles::new([
//!     ("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
//!     ("values.yaml", "greeting: hello\n"),
//!     ("templates/config.yaml", "kind: ConfigMap\ndata: {text: {{ .Values.greeting | quote }}}\n"),
//! ]);
//! let options = ChartOptions::default();
//! let chart = Chart::load(&files, &options).unwrap();
//! let rendered = render(chart, &Default::default(), &options).unwrap();
//! let wanted = "---\n# Source: web/templates/config.yaml\nkind: ConfigMap\ndata: {text: \"hello\"}\n";
//! assert_eq!(rendered.text(), wanted);
//! ```

mod archive;
mod capabilities;
mod dependencies;
mod error;
mod files;
mod ignore;
mod load;
mod manifest;
mod metadata;
mod options;
mod render;
pub mod repository;
mod schema;
mod seed;
mod set_values;
mod values;

pub use archive::unpack;
pub use capabilities::KubeVersion;
pub use error::ChartError;
pub use files::{ChartFiles, FileEntry, MemoryFiles};
pub use kiln_gotemplate::{AmbientSources, Lookup, NoAmbientSources, NoLookup};
pub use load::Chart;
pub use manifest::{Manifest, Rendered};
pub use metadata::{Dependency, Metadata};
pub use options::{ChartLimits, ChartOptions, HelmVersion, Release};
pub use render::{release_name, render, render_templates, render_with};
pub use schema::schema_violations;
pub use seed::SeededSources;
pub use set_values::{SetKind, set_value};
pub use values::{merge_values, read_values};
