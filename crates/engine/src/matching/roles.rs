//! The roles that are bound to a user.

use kiln_object::{Gvk, Selector};
use kiln_value::{Str, Value};

use crate::input::event::User;
use crate::input::view::{ListQuery, ReadError, View};

const GROUP_VERSION: &str = "rbac.authorization.k8s.io/v1";

impl User {
    /// Finds the roles that are bound to the user directly: roles by the bindings of any namespace,
    /// cluster roles by cluster bindings and by the bindings of the request's namespace.
    ///
    /// # Errors
    /// When the bindings cannot be read.
    pub fn resolve_roles(
        &mut self,
        view: &dyn View,
        namespace: Option<&str>,
    ) -> Result<(), ReadError> {
        let (mut roles, mut cluster_roles) = (Vec::new(), Vec::new());
        for binding in all(view, &Gvk::new(GROUP_VERSION, "RoleBinding"))? {
            let home = binding.str_at(["metadata", "namespace"]).unwrap_or_default();
            if !self.is_subject_of(&binding, home) {
                continue;
            }
            match role_of(&binding) {
                Some(("Role", name)) => roles.push(Str::from(format!("{home}:{name}"))),
                Some(("ClusterRole", name)) if namespace == Some(home) => {
                    cluster_roles.push(Str::from(name));
                }
                _ => {}
            }
        }
        for binding in all(view, &Gvk::new(GROUP_VERSION, "ClusterRoleBinding"))? {
            if let Some(("ClusterRole", name)) = role_of(&binding)
                && self.is_subject_of(&binding, "")
            {
                cluster_roles.push(Str::from(name));
            }
        }
        for names in [&mut roles, &mut cluster_roles] {
            names.sort();
            names.dedup();
        }
        (self.roles, self.cluster_roles) = (roles, cluster_roles);
        Ok(())
    }

    fn is_subject_of(&self, binding: &Value, home: &str) -> bool {
        let subjects = binding.get("subjects").and_then(Value::as_list);
        subjects.into_iter().flat_map(|list| list.iter()).any(|subject| {
            let name = subject.str_at(["name"]).unwrap_or_default();
            match subject.str_at(["kind"]) {
                Some("User") => name == self.username,
                Some("Group") => self.groups.iter().any(|group| group == name),
                Some("ServiceAccount") => {
                    let place = subject.str_at(["namespace"]).unwrap_or(home);
                    self.username == format!("system:serviceaccount:{place}:{name}")
                }
                _ => false,
            }
        })
    }
}

fn role_of(binding: &Value) -> Option<(&str, &str)> {
    Some((binding.str_at(["roleRef", "kind"])?, binding.str_at(["roleRef", "name"])?))
}

fn all(view: &dyn View, kind: &Gvk) -> Result<Vec<Value>, ReadError> {
    let selector = Selector::everything();
    let (mut found, mut resume) = (Vec::new(), None::<String>);
    loop {
        let query = ListQuery {
            kind,
            namespace: None,
            selector: &selector,
            limit: 500,
            resume: resume.as_deref(),
        };
        let page = view.list(&query)?;
        found.extend(page.objects);
        match page.resume {
            Some(next) => resume = Some(next),
            None => return Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::view::ListPage;
    use kiln_value::value;

    struct Bindings;

    impl View for Bindings {
        fn get(&self, _: &Gvk, _: Option<&str>, _: &str) -> Result<Option<Value>, ReadError> {
            Ok(None)
        }

        fn list(&self, query: &ListQuery<'_>) -> Result<ListPage, ReadError> {
            let user = value!([{"kind": "User", "name": "ann"}]);
            let objects = match query.kind.kind.as_str() {
                "RoleBinding" => vec![
                    value!({"metadata": {"namespace": "dev"}, "subjects": user, "roleRef": {"kind": "Role", "name": "edit"}}),
                    value!({"metadata": {"namespace": "ops"}, "subjects": [{"kind": "Group", "name": "all"}], "roleRef": {"kind": "ClusterRole", "name": "view"}}),
                    value!({"metadata": {"namespace": "dev"}, "subjects": [{"kind": "ServiceAccount", "name": "robot"}], "roleRef": {"kind": "Role", "name": "run"}}),
                ],
                _ => vec![
                    value!({"subjects": user, "roleRef": {"kind": "ClusterRole", "name": "admin"}}),
                    value!({"subjects": [{"kind": "User", "name": "bob"}], "roleRef": {"kind": "ClusterRole", "name": "no"}}),
                ],
            };
            Ok(ListPage { objects, resume: None })
        }
    }

    #[test]
    fn bindings_give_roles_to_their_subjects() {
        let resolved = |username: &str, namespace: &str| {
            let mut user =
                User { username: username.into(), groups: vec!["all".into()], ..User::default() };
            user.resolve_roles(&Bindings, Some(namespace)).unwrap();
            (user.roles.join(" "), user.cluster_roles.join(" "))
        };
        assert_eq!(resolved("ann", "dev"), ("dev:edit".to_owned(), "admin".to_owned()));
        assert_eq!(resolved("ann", "ops").1, "admin view");
        assert_eq!(
            resolved("system:serviceaccount:dev:robot", "x"),
            ("dev:run".into(), String::new())
        );
    }
}
