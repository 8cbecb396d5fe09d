#!/usr/bin/env python3
"""Renders charts: the templates of each one, with {{ .Values.NAME }} replaced by what its Chart says."""

import pathlib
import re
import sys

import yaml


def generate():
    for chart in filter(None, yaml.safe_load_all(sys.stdin)):
        values = chart["generate"].get("values", {})
        templates = sorted(pathlib.Path(chart["generate"]["chart"], "templates").glob("*.yaml"))
        if not templates:
            sys.exit(f"there is no chart in {chart['generate']['chart']}")
        for template in templates:
            print("---")
            print(re.sub(r"\{\{ *\.Values\.(\w+) *\}\}", lambda m: str(values[m[1]]), template.read_text()))


match sys.argv[1:]:
    case ["generate"]:
        generate()
    case ["transform"]:
        sys.stdout.write(sys.stdin.read())  # Nothing to change: write back what came in.
    case _:
        sys.exit(127)
