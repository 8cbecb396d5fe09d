//! How objects come, change and go.

use kiln_cluster::{ApiError, KindKey, ObjectPatch, Preconditions, Reason};
use kiln_object::{Gvk, ObjectId, fold_string_data, metadata};
use kiln_patch::{
    JsonPatch, JsonPatchRules, MergeRules, Merged, StrategicRules, merge_patch, strategic_merge,
};
use kiln_text::time::Time;
use kiln_value::{Map, Str, Value};

use super::{Memory, Table, not_found, validate};

impl Memory {
    /// Stores a new object.
    ///
    /// # Errors
    /// As the API server would.
    pub fn create(&mut self, object: Value) -> Result<Value, ApiError> {
        self.create_with(object, false)
    }

    pub(super) fn create_with(
        &mut self,
        mut object: Value,
        dry_run: bool,
    ) -> Result<Value, ApiError> {
        let gvk = self.gvk_of(&object)?;
        let namespace = self.namespace_for(&gvk, &mut object)?;
        self.check_namespace(&namespace)?;
        if metadata::name(&object).is_none()
            && let Some(prefix) = metadata::generate_name(&object).map(str::to_owned)
        {
            let name = format!("{prefix}{}", name_end(self.made + 1));
            set_metadata(&mut object, "name", name);
        }
        let id =
            ObjectId::new(gvk.clone(), &namespace, metadata::name(&object).unwrap_or_default());
        if self.has(&id) {
            return Err(ApiError::new(Reason::AlreadyExists, format!("{id} already exists")));
        }
        let has_status = self.has_status(&gvk);
        {
            let metadata = metadata_of(&mut object);
            for field in ["resourceVersion", "deletionTimestamp", "selfLink", "managedFields"] {
                metadata.remove(field);
            }
            metadata.insert("uid", uid(self.made + 1));
            metadata.insert("creationTimestamp", timestamp(self.now));
            if has_status {
                metadata.insert("generation", 1);
            }
        }
        if has_status && let Some(root) = object.as_map_mut() {
            root.remove("status");
        }
        self.complete(&gvk, &mut object, None)?;
        if dry_run {
            return Ok(gvk.in_version(&object));
        }
        self.made += 1;
        Ok(self.put(&id, object))
    }

    /// Puts an object in the place of the old one.
    ///
    /// # Errors
    /// As the API server would.
    pub fn update(&mut self, object: Value) -> Result<Value, ApiError> {
        self.update_with(object, "", false)
    }

    pub(super) fn update_with(
        &mut self,
        mut object: Value,
        subresource: &str,
        dry_run: bool,
    ) -> Result<Value, ApiError> {
        let gvk = self.gvk_of(&object)?;
        let namespace = self.namespace_for(&gvk, &mut object)?;
        let name = metadata::name(&object).unwrap_or_default();
        let id = ObjectId::new(gvk.clone(), &namespace, name);
        let old = self.get(&id)?;
        for (field, sent) in [
            ("resourceVersion", metadata::resource_version(&object)),
            ("uid", metadata::uid(&object)),
        ] {
            if let Some(sent) = sent
                && old.str_at(["metadata", field]) != Some(sent)
            {
                return Err(conflict(&id, &format!("its {field} is no longer {sent}")));
            }
        }
        let mut object = match subresource {
            "" => object,
            part => {
                // Of the object only this part is written.
                let mut whole = old.clone();
                if let Some(root) = whole.as_map_mut() {
                    match object.get(part) {
                        Some(value) => drop(root.insert(part, value.clone())),
                        None => drop(root.remove(part)),
                    }
                }
                whole
            }
        };
        if subresource.is_empty()
            && self.has_status(&gvk)
            && let Some(root) = object.as_map_mut()
        {
            match old.get("status") {
                Some(status) => drop(root.insert("status", status.clone())),
                None => drop(root.remove("status")),
            }
        }
        {
            let metadata = metadata_of(&mut object);
            for field in
                ["uid", "creationTimestamp", "generation", "deletionTimestamp", "resourceVersion"]
            {
                match old.get_path(["metadata", field]) {
                    Some(value) => drop(metadata.insert(field, value.clone())),
                    None => drop(metadata.remove(field)),
                }
            }
            metadata.remove("managedFields");
        }
        self.complete(&gvk, &mut object, Some(&old))?;
        validate::change(&gvk, &old, &object)?;
        if object == old {
            return Ok(old);
        }
        if let Some(Value::Number(generation)) = old.get_path(["metadata", "generation"])
            && content_differs(&old, &object)
        {
            let next = generation.as_i64().unwrap_or_default() + 1;
            set_metadata(&mut object, "generation", next);
        }
        if dry_run {
            return Ok(object);
        }
        if metadata::is_deleted(&object) && !is_held(&object) {
            self.end(&id, object.clone());
            return Ok(object);
        }
        Ok(self.put(&id, object))
    }

    /// Changes an object.
    ///
    /// # Errors
    /// As the API server would.
    pub fn patch(
        &mut self,
        id: &ObjectId,
        patch: &ObjectPatch,
        subresource: &str,
    ) -> Result<Value, ApiError> {
        let mut object = self.get(id)?;
        let bad = |error: String| {
            ApiError::new(Reason::Invalid, format!("the patch of {id} cannot be applied: {error}"))
        };
        match patch {
            ObjectPatch::Json(patch) => JsonPatch::parse(patch, JsonPatchRules::kubernetes())
                .and_then(|patch| patch.apply(&mut object))
                .map_err(|error| bad(error.to_string()))?,
            ObjectPatch::Merge(patch) => {
                merge_patch(&mut object, patch, MergeRules::kubernetes());
            }
            ObjectPatch::Strategic(patch) => {
                let rules = StrategicRules::kubernetes();
                let merged = strategic_merge(&mut object, patch, &self.schema, &rules)
                    .map_err(|error| bad(error.to_string()))?;
                if merged == Merged::Deleted {
                    return Err(bad("it deletes the whole object".into()));
                }
            }
        }
        self.update_with(object, subresource, false)
    }

    /// Ends an object: at once, or when its finalizers let it go.
    ///
    /// # Errors
    /// When there is none.
    pub fn delete(&mut self, id: &ObjectId) -> Result<(), ApiError> {
        self.delete_with(id, &Preconditions::default())
    }

    pub(super) fn delete_with(
        &mut self,
        id: &ObjectId,
        preconditions: &Preconditions,
    ) -> Result<(), ApiError> {
        let mut object = self.get(id)?;
        let checks = [
            (&preconditions.uid, metadata::uid(&object)),
            (&preconditions.resource_version, metadata::resource_version(&object)),
        ];
        for (wanted, found) in checks {
            if wanted.is_some() && wanted.as_deref() != found {
                return Err(conflict(id, "a precondition of its deletion does not hold"));
            }
        }
        if metadata::is_deleted(&object) {
            return Ok(());
        }
        let is_namespace = id.gvk.group.is_empty() && id.gvk.kind == "Namespace";
        if is_namespace || is_held(&object) {
            set_metadata(&mut object, "deletionTimestamp", timestamp(self.now));
            if is_namespace {
                // The status of a namespace is always a map.
                let _ = object.set(["status", "phase"], "Terminating");
            }
            self.put(id, object);
        } else {
            self.end(id, object);
        }
        Ok(())
    }

    /// What a server adds to an object before it stores it, and whether it stores it.
    fn complete(
        &mut self,
        gvk: &Gvk,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        fold_string_data(object);
        if let Some(root) = object.as_map_mut()
            && gvk.group.is_empty()
        {
            match gvk.kind.as_str() {
                "Secret" => drop(root.get_or_insert_with("type", || "Opaque".into())),
                "Namespace" => {
                    root.get_or_insert_with(
                        "spec",
                        || kiln_value::value!({"finalizers": ["kubernetes"]}),
                    );
                    root.get_or_insert_with("status", || kiln_value::value!({"phase": "Active"}));
                }
                _ => {}
            }
        }
        if gvk.group.is_empty()
            && gvk.kind == "Namespace"
            && let Some(name) = metadata::name(object).map(str::to_owned)
        {
            let _ = metadata::set_label(object, "kubernetes.io/metadata.name", &name);
        }
        if let Some(admission) = &self.admission {
            admission(object, old)?;
        }
        validate::object(gvk, object)
    }

    pub(super) fn put(&mut self, id: &ObjectId, mut object: Value) -> Value {
        self.revision += 1;
        set_metadata(&mut object, "resourceVersion", self.revision.to_string());
        let table = self.tables.entry(KindKey::of(&id.gvk)).or_default();
        table.put((id.namespace.clone(), id.name.clone()), object.clone(), self.revision);
        if is_definition(&id.gvk) {
            self.define(&object);
        }
        object
    }

    pub(super) fn end(&mut self, id: &ObjectId, mut last: Value) {
        self.revision += 1;
        set_metadata(&mut last, "resourceVersion", self.revision.to_string());
        if is_definition(&id.gvk) {
            self.undefine(&last);
        }
        if let Some(table) = self.tables.get_mut(&KindKey::of(&id.gvk)) {
            table.remove(&(id.namespace.clone(), id.name.clone()), last, self.revision);
        }
    }

    fn define(&mut self, definition: &Value) {
        if let Ok(kinds) = self.kinds.clone().with_crd(definition) {
            self.kinds = kinds;
        }
        if let Ok(schema) = self.schema.clone().with_crd(definition) {
            self.schema = schema;
        }
    }

    /// The objects of a kind go with its definition.
    fn undefine(&mut self, definition: &Value) {
        let group = definition.str_at(["spec", "group"]).unwrap_or_default();
        let kind = definition.str_at(["spec", "names", "kind"]).unwrap_or_default();
        let key = KindKey::new(group, kind);
        let objects: Vec<Value> =
            self.tables.get(&key).into_iter().flat_map(Table::objects).cloned().collect();
        for object in objects {
            if let Ok(id) = ObjectId::of(&object) {
                self.end(&id, object);
            }
        }
        self.kinds = self.kinds.clone().without(group, kind);
    }

    pub(super) fn gvk_of(&self, object: &Value) -> Result<Gvk, ApiError> {
        let gvk = Gvk::of(object).ok_or_else(|| {
            ApiError::new(Reason::Invalid, "the object has no apiVersion or no kind")
        })?;
        self.known(&gvk)?;
        Ok(gvk)
    }

    /// The namespace of an object; `default` for namespaced ones that name none.
    pub(super) fn namespace_for(&self, gvk: &Gvk, object: &mut Value) -> Result<Str, ApiError> {
        let named = metadata::namespace(object).map(Str::from);
        match (self.kinds.is_namespaced(gvk), named) {
            (Some(false), Some(namespace)) => Err(ApiError::new(
                Reason::Invalid,
                format!("{} is cluster-scoped and has no namespace {namespace:?}", gvk.kind),
            )),
            (Some(false), None) => Ok(Str::default()),
            (_, Some(namespace)) => Ok(namespace),
            (_, None) => {
                set_metadata(object, "namespace", "default");
                Ok("default".into())
            }
        }
    }

    pub(super) fn check_namespace(&self, namespace: &str) -> Result<(), ApiError> {
        if namespace.is_empty() {
            return Ok(());
        }
        let id = ObjectId::new(Gvk::new("v1", "Namespace"), "", namespace);
        match self.stored(&KindKey::new("", "Namespace"), "", namespace) {
            None => Err(not_found(&id)),
            Some(found) if metadata::is_deleted(found) => Err(ApiError::new(
                Reason::NamespaceTerminating,
                format!(
                    "unable to create new content in namespace {namespace} because it is being terminated"
                ),
            )),
            Some(_) => Ok(()),
        }
    }

    fn has_status(&self, gvk: &Gvk) -> bool {
        self.kinds.get(gvk).is_some_and(|kind| kind.subresource("status").is_some())
    }
}

fn is_definition(gvk: &Gvk) -> bool {
    gvk.group == "apiextensions.k8s.io" && gvk.kind == "CustomResourceDefinition"
}

/// Whether something must happen before the object can go.
fn is_held(object: &Value) -> bool {
    object
        .get_path(["metadata", "finalizers"])
        .and_then(Value::as_list)
        .is_some_and(|finalizers| !finalizers.is_empty())
}

fn conflict(id: &ObjectId, why: &str) -> ApiError {
    ApiError::new(Reason::Conflict, format!("{id} has been modified: {why}; read it again"))
}

fn content_differs(old: &Value, new: &Value) -> bool {
    let content = |object: &Value| {
        let mut object = object.clone();
        if let Some(root) = object.as_map_mut() {
            root.remove("metadata");
            root.remove("status");
        }
        object
    };
    content(old) != content(new)
}

fn metadata_of(object: &mut Value) -> &mut Map {
    if object.get("metadata").and_then(Value::as_map).is_none() {
        // An object without metadata is refused later, for its missing name.
        let _ = object.set(["metadata"], Value::map());
    }
    object
        .get_mut("metadata")
        .and_then(Value::as_map_mut)
        .expect("an object of a known kind is a map, and was just given metadata")
}

fn set_metadata(object: &mut Value, field: &str, value: impl Into<Value>) {
    metadata_of(object).insert(field, value);
}

fn timestamp(seconds: i64) -> String {
    Time::from_unix(seconds, 0).map_or_else(String::new, |time| time.rfc3339())
}

/// A UID that no other object has, the same in every run.
fn uid(number: u64) -> String {
    let (a, b) = (mix(number), mix(number ^ 0x5851_f42d_4c95_7f2d));
    format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xfff,
        b >> 52,
        number & 0xffff_ffff_ffff
    )
}

/// The end of a name that a server makes up.
fn name_end(number: u64) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut bits = mix(number);
    (0..5)
        .map(|_| {
            let letter = LETTERS[(bits % 27) as usize];
            bits /= 27;
            char::from(letter)
        })
        .collect()
}

/// SplitMix64: every number once, none in order.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
