{{- /*
Templates that print JSON, which is YAML: they can stand behind a key without regard to indentation. They use nothing
but Go's templates and sprig, so that tests render them without Helm as well.
*/ -}}

{{- /* The domain of labels that users write: Kyverno's, or Kiln's own beside it. */ -}}
{{- define "kiln.domain" -}}
{{- ternary "kyverno.io" "kiln.dev" (eq .Values.name "kyverno") -}}
{{- end -}}

{{- /* The labels of an object. Call with (list . COMPONENT). */ -}}
{{- define "kiln.labels" -}}
{{- $name := (first .).Values.name -}}
{{- $own := dict "app.kubernetes.io/part-of" $name "app.kubernetes.io/instance" $name "app.kubernetes.io/name" "kiln" "app.kubernetes.io/component" (last .) -}}
{{- toRawJson (merge $own (first .).Values.labels) -}}
{{- end -}}

{{- /* The labels of an object that Prometheus or Grafana selects. */ -}}
{{- define "kiln.monitoring-labels" -}}
{{- $name := .Values.name -}}
{{- $own := dict "app.kubernetes.io/part-of" $name "app.kubernetes.io/instance" $name "app.kubernetes.io/name" "kiln" "app.kubernetes.io/component" "monitoring" -}}
{{- toRawJson (merge $own .Values.labels .Values.monitoring.labels) -}}
{{- end -}}

{{- /* The line with annotations, if there are any. */ -}}
{{- define "kiln.annotations" -}}
{{- with .Values.annotations }}
  annotations: {{ toRawJson . }}
{{- end -}}
{{- end -}}

{{- /* Further labels of an object that is generated, one on each line. */ -}}
{{- define "kiln.label-lines" -}}
{{- range $key, $value := .Values.labels }}
    {{ toRawJson $key }}: {{ toRawJson $value }}
{{- end -}}
{{- end -}}

{{- /* Further labels of a generated object that Prometheus or Grafana selects. */ -}}
{{- define "kiln.monitoring-label-lines" -}}
{{- range $key, $value := merge (dict) .Values.labels .Values.monitoring.labels }}
    {{ toRawJson $key }}: {{ toRawJson $value }}
{{- end -}}
{{- end -}}

{{- /* Further annotations of an object that is generated, one on each line. */ -}}
{{- define "kiln.annotation-lines" -}}
{{- range $key, $value := .Values.annotations }}
    {{ toRawJson $key }}: {{ toRawJson $value }}
{{- end -}}
{{- end -}}

{{- /* The annotations of a ServiceAccount. */ -}}
{{- define "kiln.account-annotations" -}}
{{- with merge (dict) .Values.serviceAccount.annotations .Values.annotations }}
  annotations: {{ toRawJson . }}
{{- end -}}
{{- end -}}

{{- /* The annotations of a hook. Call with (list . HOOK WEIGHT). */ -}}
{{- define "kiln.hook" -}}
{{- $own := dict "helm.sh/hook" (index . 1) "helm.sh/hook-weight" (index . 2) "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" -}}
{{- toRawJson (merge $own (first .).Values.annotations) -}}
{{- end -}}

{{- define "kiln.kept-hook" -}}
{{- $own := dict "helm.sh/hook" (index . 1) "helm.sh/hook-weight" (index . 2) "helm.sh/hook-delete-policy" "before-hook-creation" -}}
{{- toRawJson (merge $own (first .).Values.annotations) -}}
{{- end -}}

{{- define "kiln.image" -}}
{{- $image := .Values.image -}}
{{- if not $image.repository -}}
{{- fail "image.repository is required: no image of Kiln is published. Build one, push it to a registry that your nodes reach, and give --set image.repository=REGISTRY/kiln (see docs/guides/production.md)" -}}
{{- end -}}
{{- if $image.digest -}}
{{- toRawJson (printf "%s@%s" $image.repository $image.digest) -}}
{{- else -}}
{{- toRawJson (printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag)) -}}
{{- end -}}
{{- end -}}

{{- /* What the schema cannot say. */ -}}
{{- define "kiln.check" -}}
{{- if not (or .Values.features.admission .Values.features.controller) -}}
{{- fail "features.admission and features.controller are both false: there would be nothing to do" -}}
{{- end -}}
{{- end -}}

{{- /* What pods have in common, wherever they come from. */ -}}
{{- define "kiln.pod-placement" -}}
{{- with .Values.priorityClassName }}
      priorityClassName: {{ toRawJson . }}
{{- end }}
{{- with .Values.affinity }}
      affinity: {{ toRawJson . }}
{{- end }}
{{- with .Values.nodeSelector }}
      nodeSelector: {{ toRawJson . }}
{{- end }}
{{- with .Values.tolerations }}
      tolerations: {{ toRawJson . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
      imagePullSecrets: {{ toRawJson . }}
{{- end }}
{{- end -}}

{{- /* A Deployment. Call with a dict: root, name, component, args, replicas, resources. */ -}}
{{- define "kiln.deployment" -}}
{{- $values := .root.Values -}}
{{- $name := $values.name -}}
{{- $selector := dict "app.kubernetes.io/name" "kiln" "app.kubernetes.io/component" .component -}}
{{- $labels := dict "app.kubernetes.io/part-of" $name "app.kubernetes.io/instance" $name "app.kubernetes.io/name" "kiln" "app.kubernetes.io/component" .component -}}
{{- $called := ternary (list) (list (printf "--name=%s" $name)) (eq $name "kyverno") -}}
{{- if $values.openReports -}}
{{- $called = append $called "--openreports" -}}
{{- end -}}
{{- if $values.monitoring.kyvernoMetrics -}}
{{- $called = append $called "--kyverno-metrics" -}}
{{- end -}}
{{- $args := concat (list "run" (printf "--namespace=%s" .root.Release.Namespace)) $called .args (list "--listen=0.0.0.0:9443") -}}
{{- if ne $values.logging.level "info" -}}
{{- $args = append $args (printf "--log=%s" $values.logging.level) -}}
{{- end -}}
{{- if $values.logging.json -}}
{{- $args = append $args "--log-json" -}}
{{- end -}}
{{- $args = concat $args $values.extraArgs -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{ template "kiln.labels" (list .root .component) }}
{{- template "kiln.annotations" .root }}
spec:
  replicas: {{ toRawJson .replicas }}
  selector:
    matchLabels: {{ toRawJson $selector }}
  # The new one answers before the old one ends.
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: 0
      maxSurge: 1
  template:
    metadata:
      labels: {{ toRawJson (merge $labels $values.podLabels) }}
{{- with $values.podAnnotations }}
      annotations: {{ toRawJson . }}
{{- end }}
    spec:
      serviceAccountName: {{ $values.serviceAccount.name }}
      # Longer than it keeps serving after SIGTERM and finishes open calls.
      terminationGracePeriodSeconds: 60
      securityContext:
        runAsNonRoot: true
        seccompProfile:
          type: RuntimeDefault
{{- if and $values.topologySpread.enabled $values.topologySpread.topologyKeys }}
      topologySpreadConstraints:
{{- range $values.topologySpread.topologyKeys }}
      - maxSkew: 1
        topologyKey: {{ toRawJson . }}
        whenUnsatisfiable: {{ $values.topologySpread.whenUnsatisfiable }}
        labelSelector:
          matchLabels: {{ toRawJson $selector }}
{{- end }}
{{- end }}
{{- template "kiln.pod-placement" .root }}
      containers:
      - name: kiln
        image: {{ template "kiln.image" .root }}
        imagePullPolicy: {{ $values.image.pullPolicy }}
        args: {{ toRawJson $args }}
        ports:
        - name: https
          containerPort: 9443
        livenessProbe:
          httpGet:
            path: /healthz
            port: https
            scheme: HTTPS
        readinessProbe:
          httpGet:
            path: /readyz
            port: https
            scheme: HTTPS
        resources: {{ toRawJson (default (dict) .resources) }}
        securityContext:
          allowPrivilegeEscalation: false
          capabilities:
            drop:
            - ALL
          readOnlyRootFilesystem: true
{{- end -}}

{{- /* A Service in front of pods. Call with a dict: root, name, labelled (its component), component (of the pods). */ -}}
{{- define "kiln.service" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{ template "kiln.labels" (list .root .labelled) }}
{{- template "kiln.annotations" .root }}
spec:
  selector:
    app.kubernetes.io/name: kiln
    app.kubernetes.io/component: {{ .component }}
  ports:
  - name: https
    port: 443
    targetPort: https
{{- end -}}
