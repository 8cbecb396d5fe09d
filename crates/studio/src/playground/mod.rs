//! The playground: files in, everything that can be said about them out. The web application calls it, in the browser
//! through WebAssembly and over HTTP with `kiln ui`.

mod evaluate;
mod frames;
mod suite;
mod tab_cluster;
mod workspace;

use kiln_diagnostic::Diagnostic;
use kiln_jmespath::AmbientSources;
use kiln_value::{Map, Value, json};
use kiln_world::WorldImage;

use self::evaluate::{Wanted, evaluate, problem_as_value};
use self::tab_cluster::TabCluster;
pub use self::workspace::{FileRole, Workspace, WorkspaceFile};

/// One page, and what it keeps between its calls.
#[derive(Debug, Default)]
pub struct Playground {
    /// A cluster with the engine and nothing else, which all clusters of the page begin with.
    image: Option<WorldImage>,
    cluster: Option<TabCluster>,
}

impl Playground {
    /// Answers a call of the web application: JSON in, JSON out. Whatever is wrong is in the answer.
    pub fn call(&mut self, request: &str, sources: &dyn AmbientSources) -> String {
        let answer = self.answer(request, sources).unwrap_or_else(|problem| {
            Value::from(Map::from_iter([("error", problem_as_value(&problem))]))
        });
        json::to_string(&answer)
    }

    fn image(&mut self) -> Result<WorldImage, Diagnostic> {
        if let Some(image) = &self.image {
            return Ok(image.clone());
        }
        let image = WorldImage::with_engine(&[], None)
            .map_err(|error| Diagnostic::error(error.to_string()))?;
        self.image = Some(image.clone());
        Ok(image)
    }

    fn answer(&mut self, request: &str, sources: &dyn AmbientSources) -> Result<Value, Diagnostic> {
        let request = json::parse(request)
            .map_err(|error| Diagnostic::error(format!("the request is not JSON: {error}")))?;
        let wants = |name: &str| request.get(name).and_then(Value::as_bool).unwrap_or_default();
        let workspace = || Workspace::read(request.get("workspace").unwrap_or(&Value::Null));
        match request.str_at(["method"]).unwrap_or_default() {
            "evaluate" => {
                let wanted = Wanted {
                    trace: wants("trace"),
                    plan: wants("plan"),
                    lineage: wants("lineage"),
                };
                Ok(evaluate(&workspace()?, wanted, sources))
            }
            "suite" => {
                let workspace = workspace()?;
                let evaluated = evaluate(&workspace, Wanted::default(), sources);
                let results = evaluated.get("results").cloned().unwrap_or_default();
                let text = suite::suite_of(&workspace, &results);
                Ok(Value::from(Map::from_iter([("text", text)])))
            }
            "assist" => {
                let text = |key: &str| request.str_at([key]).unwrap_or_default();
                let offset = request.get("offset").and_then(Value::as_i64).unwrap_or(0);
                let offset = usize::try_from(offset).unwrap_or(0);
                let files = request.get("workspace").map(Workspace::read).transpose()?;
                let files = files.unwrap_or_default().tree();
                let help =
                    kiln_editor::place_help(text("path"), text("text"), offset, Some(&files));
                Ok(json::parse(&help.to_string()).unwrap_or_default())
            }
            "cluster.start" => {
                let image = self.image()?;
                self.cluster = Some(TabCluster::start(&image, &workspace()?)?);
                Ok(Value::from(Map::new()))
            }
            method if method.starts_with("cluster.") => match &mut self.cluster {
                Some(cluster) => cluster.call(method, &request),
                None => Err(Diagnostic::error("the cluster of this page has not started")
                    .hint("open the view of the cluster again")),
            },
            method => Err(Diagnostic::error(format!("there is no method {method:?}"))),
        }
    }
}
