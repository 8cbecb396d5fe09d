#!/usr/bin/env python3
"""What the team means by a CommonApp: `generate` makes a Deployment and a Service of it; `transform` sets what it says on
all objects, and what every Deployment of the team has."""

import sys

import yaml


def made_of(app):
    name = app["image"]
    labels = {"app": name}
    replicas = 3 if app.get("size") == "big" else 1
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": name}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    yield {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
    spec = {"selector": labels, "ports": [{"port": 80}]}
    yield {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def transform(objects, wanted):
    for item in objects:
        metadata = item["metadata"]
        for key, value in wanted.get("commonAnnotations", {}).items():
            metadata.setdefault("annotations", {}).setdefault(key, value)
        metadata["name"] = wanted.get("namePrefix", "") + metadata["name"]
        if item["kind"] == "Deployment":
            item["spec"].setdefault("revisionHistoryLimit", 3)


def main(word):
    documents = [document for document in yaml.safe_load_all(sys.stdin) if document]
    apps = [d for d in documents if d.get("groupVersion", "").startswith("team.example.com")]
    objects = [d for d in documents if d not in apps]
    there = {(d["kind"], d["metadata"]["name"]) for d in objects}
    if word == "transform":
        for app in apps:
            transform(objects, app.get("transform", {}))
    for app in apps:
        # What it made as a generator comes back when it transforms.
        if "generate" in app and ("Deployment", app["generate"]["image"]) not in there:
            objects.extend(made_of(app["generate"]))
    Dumper = yaml.SafeDumper
    Dumper.ignore_aliases = lambda *_: True
    yaml.dump_all(objects, sys.stdout, Dumper=Dumper)


if sys.argv[1:] not in (["generate"], ["transform"]):
    sys.exit(127)
main(sys.argv[1])
