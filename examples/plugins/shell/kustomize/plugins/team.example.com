#!/bin/sh
# What the team means by a CommonApp: `generate` makes a Deployment and a Service of it; `transform` sets what it says on
# all objects, and what every Deployment of the team has.
set -eu

case ${1-} in
generate | transform) ;;
*) exit 127 ;;
esac

# Standard input is plain YAML: sorted keys, two blanks a level.
exec awk -v word="$1" '
$0 == "---" { take(); next }
{ text = text $0 "\n" }
/^[^ ]/ { section = $1; part = "" }
/^  [^ ]/ { part = $1 }
/^kind: / { kind = $2 }
/^groupVersion: team\.example\.com/ { is_app = 1 }
section == "metadata:" && /^  name: / { name = $2 }
section == "generate:" && /^  image: / { image = $2 }
section == "generate:" && /^  size: / { size = $2 }
section == "transform:" && /^  namePrefix: / { prefix = $2 }
section == "transform:" && part == "commonAnnotations:" && /^    / { annotations[$1] = $2 }
END {
    take()
    for (at = 1; word == "transform" && at <= objects; at++) print "---\n" transformed(at)
    for (at = 1; at <= apps; at++) make(images[at], sizes[at])
}

# A document is complete: an app, or an object of the build.
function take() {
    if (is_app) {
        images[++apps] = image
        sizes[apps] = size
    } else if (text != "") {
        texts[++objects] = text
        kinds[objects] = kind
        there[kind "/" name] = 1
    }
    text = kind = name = image = size = section = ""
    is_app = 0
}

function transformed(at, text, key) {
    text = "\n" texts[at]
    for (key in annotations)
        if (index(text, "\n    " key " ") == 0) {
            if (text !~ /\nmetadata:\n  annotations:/) sub(/\nmetadata:/, "&\n  annotations:", text)
            sub(/\n  annotations:/, "&\n    " key " " annotations[key], text)
        }
    if (kinds[at] == "Deployment" && text !~ /\n  revisionHistoryLimit: /)
        sub(/\nspec:/, "&\n  revisionHistoryLimit: 3", text)
    sub(/\n  name: /, "&" prefix, text)
    return text
}

# What it made as a generator comes back when it transforms.
function make(image, size) {
    if (image == "" || ("Deployment/" image) in there) return
    printf "---\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: %s\nspec:\n", image
    printf "  replicas: %d\n  selector:\n    matchLabels:\n      app: %s\n", (size == "big" ? 3 : 1), image
    printf "  template:\n    metadata:\n      labels:\n        app: %s\n", image
    printf "    spec:\n      containers:\n      - image: %s\n        name: app\n", image
    printf "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: %s\nspec:\n", image
    printf "  ports:\n  - port: 80\n  selector:\n    app: %s\n", image
}
'
