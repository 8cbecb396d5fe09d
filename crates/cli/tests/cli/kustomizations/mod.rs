//! Commands on kustomizations.

mod as_kustomize;
mod build;
mod build_charts_remote;
mod build_remote;
mod edit;
mod plan_kustomization;
mod releases;
