#!/bin/sh
# Renders charts: the templates of each one, with {{ .Values.NAME }} replaced by what its Chart says.
set -eu

case ${1-} in
generate) ;;
transform) exec cat ;; # Nothing to change: write back what came in.
*) exit 127 ;;
esac

render() {
    [ -n "$chart" ] || return 0
    [ -d "$chart/templates" ] || { echo "there is no chart in $chart" >&2; exit 1; }
    for template in "$chart"/templates/*.yaml; do
        echo ---
        sed "$replace" "$template"
    done
}

# Standard input is plain YAML: sorted keys, two blanks a level.
chart= replace=
while IFS= read -r line; do
    case $line in
    ---)
        render
        chart= replace=
        ;;
    '  chart: '*) chart=${line#'  chart: '} ;;
    '    '*': '*)
        name=${line%%: *}
        replace="$replace
s|{{ *\.Values\.${name#    } *}}|${line#*: }|g"
        ;;
    esac
done
render
