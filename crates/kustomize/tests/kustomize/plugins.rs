//! Plugins with a host that only pretends to run programs: what it is asked, and what its answers do.

use std::cell::RefCell;

use kiln_kustomize::fs::{FileError, FileSystem, Memory, Resolved};
use kiln_kustomize::{
    Build, BuildOptions, Command, Exit, Failed, Finished, Output, Programs, Result, Trust,
};

/// A tree in which everything below `/plugins` can be executed.
struct Tree(Memory);

impl FileSystem for Tree {
    fn resolve(&self, path: &str) -> std::result::Result<Resolved, FileError> {
        self.0.resolve(path)
    }

    fn read(&self, path: &str, limit: usize) -> std::result::Result<Vec<u8>, FileError> {
        self.0.read(path, limit)
    }

    fn is_executable(&self, path: &str) -> Option<bool> {
        self.0.is_executable(path).map(|_| path.starts_with("/plugins/"))
    }
}

/// Answers as a function of the command, and remembers the commands.
struct Host<F> {
    answer: F,
    asked: RefCell<Vec<Command>>,
    at_once: RefCell<Vec<usize>>,
}

impl<F: Fn(&Command) -> Finished> Host<F> {
    fn new(answer: F) -> Self {
        Host { answer, asked: RefCell::default(), at_once: RefCell::default() }
    }
}

impl<F: Fn(&Command) -> Finished> Programs for Host<F> {
    fn run(&self, command: &Command) -> Result<Finished> {
        self.asked.borrow_mut().push(command.clone());
        Ok((self.answer)(command))
    }

    fn run_all(&self, commands: &[Command]) -> Vec<Result<Finished>> {
        self.at_once.borrow_mut().push(commands.len());
        commands.iter().map(|command| self.run(command)).collect()
    }

    fn plugin_home(&self) -> Option<String> {
        None
    }

    fn group_plugin_homes(&self) -> Vec<String> {
        vec!["/plugins".to_owned()]
    }

    fn not_held(&self) -> Vec<String> {
        vec!["plugins are not confined here".to_owned()]
    }
}

fn tree() -> Memory {
    Memory::new()
        .with("app/kustomization.yaml", "generators: [a.yaml, b.yaml]\nresources: [c.yaml]\n")
        .with("app/a.yaml", "groupVersion: a.example.com/v1\nkind: A\nsize: 1\n")
        .with("app/b.yaml", "apiVersion: b.example.com/v1\nkind: B\nmetadata: {name: b}\n")
        .with("app/c.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n")
        .with("plugins/a.example.com", "")
        .with("plugins/generators/b.example.com", "")
}

fn build(tree: Memory, host: &dyn Programs) -> std::result::Result<Output, Box<Failed>> {
    let options = BuildOptions { enable_plugins: true, ..BuildOptions::default() };
    Build::new(&Tree(tree), &options).programs(host).run("/app")
}

/// Generates a ConfigMap with the group as its name, and does not transform.
fn generates(command: &Command) -> Finished {
    let group = command.program.rsplit('/').next().unwrap_or_default();
    let word = format!("{:?}", command.arguments[0]);
    if !word.contains("generate") {
        return Finished { exit: Exit::Code(127), ..Finished::default() };
    }
    let output = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {group}}}\n");
    Finished { output: output.into_bytes(), ..Finished::default() }
}

#[test]
fn generators_are_asked_at_once_and_each_with_its_own_configurations() {
    let host = Host::new(generates);
    let output = build(tree(), &host).unwrap();
    for name in ["name: a.example.com", "name: b.example.com", "name: c"] {
        assert!(output.yaml.contains(name), "{}", output.yaml);
    }
    // Two that generate together, then each that transforms by itself.
    assert_eq!(*host.at_once.borrow(), [2, 1, 1]);
    let asked = host.asked.borrow();
    let inputs: Vec<_> =
        asked.iter().map(|command| String::from_utf8_lossy(&command.input)).collect();
    assert_eq!(inputs[0], "groupVersion: a.example.com/v1\nkind: A\nsize: 1\n");
    assert_eq!(inputs[1], "apiVersion: b.example.com/v1\nkind: B\nmetadata:\n  name: b\n");
    assert!(inputs[2].starts_with("groupVersion: a.example.com/v1\nkind: A\nsize: 1\n---\n"));
    assert_eq!(inputs[2].matches("kind: ConfigMap").count(), 3);
    for command in asked.iter() {
        assert_eq!((command.directory.as_str(), &command.trust), ("/app", &Trust::Plugin(vec![])));
    }
}

#[test]
fn a_host_that_cannot_hold_plugins_back_says_so_once() {
    let output = build(tree(), &Host::new(generates)).unwrap();
    let told = output.warnings.iter().filter(|w| w.message.contains("are not confined")).count();
    assert_eq!(told, 1);
    // No warning where there is nothing to confine.
    let plain = tree().with("app/kustomization.yaml", "resources: [c.yaml]\n");
    assert!(build(plain, &Host::new(generates)).unwrap().warnings.is_empty());
}

#[test]
fn a_plugin_sees_objects_without_anything_that_is_not_theirs() {
    let host = Host::new(|command: &Command| Finished {
        output: match format!("{:?}", command.arguments[0]).contains("transform") {
            true => command.input.clone(),
            false => Vec::new(),
        },
        ..Finished::default()
    });
    let tree = tree().with(
        "app/kustomization.yaml",
        "generators: [a.yaml]\nresources: [c.yaml]\nbuildMetadata: [originAnnotations]\nnamePrefix: x-\n",
    );
    let output = build(tree, &host).unwrap();
    assert!(output.yaml.contains("name: x-c\n"), "{}", output.yaml);
    assert!(output.yaml.contains("path: c.yaml"), "the origin is kept: {}", output.yaml);
    for command in host.asked.borrow().iter() {
        let input = String::from_utf8_lossy(&command.input).into_owned();
        assert!(!input.contains("annotations"), "{input}");
    }
}

#[test]
fn one_that_cannot_be_asked_fails_the_build_at_its_configuration() {
    let options = BuildOptions { enable_plugins: true, ..BuildOptions::default() };
    let failed = Build::new(&Tree(tree()), &options).run("/app").unwrap_err();
    assert!(failed.error.to_string().contains("unable to load plugin A ("), "{failed}");
    struct Broken;
    impl Programs for Broken {
        fn run(&self, _: &Command) -> Result<Finished> {
            Err(kiln_kustomize::Error::new("the machine is on fire"))
        }
        fn plugin_home(&self) -> Option<String> {
            None
        }
        fn group_plugin_homes(&self) -> Vec<String> {
            vec!["/plugins".to_owned()]
        }
    }
    let failed = build(tree(), &Broken).unwrap_err();
    assert_eq!(failed.error.to_string(), "the machine is on fire");
    assert_eq!(failed.error.place().unwrap().to_string(), "/app/a.yaml:1:1");
}
