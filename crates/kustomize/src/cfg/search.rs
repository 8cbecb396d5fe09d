//! `cfg grep`: the objects with a field that matches.

use std::cmp::Ordering;

use kiln_text::{Quantity, Regex};
use kiln_yaml::{Node, NodeStyle};

use super::matching;
use crate::error::{Error, Result};

/// What to look for.
#[derive(Debug)]
pub struct Search {
    path: Vec<String>,
    wanted: Wanted,
    /// Those that do not match.
    invert: bool,
}

#[derive(Debug)]
enum Wanted {
    Pattern(Box<Regex>),
    /// A quantity that compares in one of these ways.
    Quantity(String, &'static [Ordering]),
}

impl Search {
    /// A search as it is typed: `PATH=PATTERN`, or `PATH>QUANTITY` with `<`, `>=`, `<=` likewise.
    ///
    /// # Errors
    /// When it cannot be understood.
    pub fn parse(query: &str, invert: bool) -> Result<Self> {
        let mut path = matching::parse(query)?;
        let last = path.pop().unwrap_or_default();
        const COMPARED: [(&str, &[Ordering]); 4] = [
            (">=", &[Ordering::Greater, Ordering::Equal]),
            ("<=", &[Ordering::Less, Ordering::Equal]),
            (">", &[Ordering::Greater]),
            ("<", &[Ordering::Less]),
        ];
        let compared = COMPARED.into_iter().find(|(sign, _)| last.contains(sign));
        let sign = compared.map_or("=", |(sign, _)| sign);
        let parts: Vec<&str> = last.split(sign).collect();
        if parts.len() > 2 {
            return Err(Error::new(format!(
                "ambiguous match -- multiple of ['<', '>', '<=', '>=', '=' in final path element: {last}"
            )));
        }
        let value = parts.get(1).copied().unwrap_or_default();
        path.push(parts[0].to_owned());
        let wanted = match compared {
            Some((_, orders)) => Wanted::Quantity(value.to_owned(), orders),
            None => Wanted::Pattern(Box::new(
                Regex::new(value).map_err(|error| Error::new(error.to_string()))?,
            )),
        };
        Ok(Search { path, wanted, invert })
    }

    /// Keeps what is found.
    ///
    /// # Errors
    /// When something cannot be compared.
    pub(super) fn keep(&self, nodes: &mut Vec<Node>) -> Result<()> {
        let mut kept = Vec::new();
        for node in nodes.drain(..) {
            let found = matching::find(node.root(), &self.path)?;
            let mut matches = false;
            for found in &found {
                matches |= self.matches(&found.node)?;
            }
            if matches != self.invert {
                kept.push(node);
            }
        }
        *nodes = kept;
        Ok(())
    }

    fn matches(&self, node: &Node) -> Result<bool> {
        match &self.wanted {
            Wanted::Pattern(pattern) => {
                let node = Node { style: NodeStyle::FLOW, ..node.clone() };
                let text = kiln_yaml::emit_node(&node).replace('"', "");
                Ok(pattern.is_match(text.trim()))
            }
            Wanted::Quantity(..) if node.value.is_empty() => Ok(false),
            Wanted::Quantity(wanted, orders) => {
                let quantity = |text: &str| {
                    Quantity::parse(text).map_err(|error| {
                        Error::new(format!("{text}: {error}"))
                            .hint("only quantities are compared, such as 3, 500m or 2Gi")
                    })
                };
                Ok(orders.contains(&quantity(&node.value)?.cmp(&quantity(wanted)?)))
            }
        }
    }
}
