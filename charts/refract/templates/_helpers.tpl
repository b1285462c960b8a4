{{/*
Common templates. The three parts of Refract (propagation, injection, conversion) are the same program with other arguments.
So this file defines their ServiceAccount, Deployment, Service and PodDisruptionBudget once. These templates take a dict with
three keys: root is the top-level context with the values and the release; part is the key of the part in the values; name is
the name of the objects.
*/}}

{{/* The result is not empty if this release runs any part. */}}
{{- define "refract.runs" -}}
{{- if or .Values.propagation.enabled .Values.injection.enabled .Values.conversion.enabled }}yes{{ end -}}
{{- end -}}

{{/*
The values of a part, as JSON. The values of the part override the values for all parts. Lists replace lists. Only extraArgs
has the arguments of both levels, those of the part last.
*/}}
{{- define "refract.values" -}}
{{- $own := index .root.Values .part -}}
{{- $all := omit .root.Values "propagation" "injection" "conversion" "metrics" -}}
{{- $merged := include "refract.over" (dict "under" $all "over" $own) | fromJson -}}
{{- $_ := set $merged "extraArgs" (concat ($all.extraArgs | default list) ($own.extraArgs | default list)) -}}
{{- toJson $merged -}}
{{- end -}}

{{/* A merge of two tables, as JSON: `over` overrides `under`, also with empty and false values, unlike Sprig's own merge. */}}
{{- define "refract.over" -}}
{{- $merged := deepCopy .under -}}
{{- range $key, $value := .over -}}
{{- $under := get $merged $key -}}
{{- if and (kindIs "map" $value) (kindIs "map" $under) -}}
{{- $value = include "refract.over" (dict "under" $under "over" $value) | fromJson -}}
{{- end -}}
{{- $_ := set $merged $key $value -}}
{{- end -}}
{{- toJson $merged -}}
{{- end -}}

{{/*
The name of an image, from the values and the chart's appVersion. A digest has priority over a tag. An image name without a host
is an error: the image would come from a registry that does not belong to Refract.
*/}}
{{- define "refract.image" -}}
{{- $name := list .image.registry .image.repository | compact | join "/" -}}
{{- if not (regexMatch "^(localhost|[^/]*[.:][^/]*)/" $name) -}}
{{- fail "image.registry: want the host of a registry of yours that has the image of Refract, as registry.example.com/team: there is no default (make image PUSH=registry.example.com/team/refract:v0.1.0 pushes the image that make dist makes)" -}}
{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (.image.tag | default .appVersion) -}}
{{- end -}}
{{- end -}}

{{/* Nine tenths of a memory limit, in the format of Go's runtime. */}}
{{- define "refract.nineTenths" -}}
{{- $unit := regexFind "[MG]i?$" . -}}
{{- $bytes := get (dict "M" 1000000 "Mi" 1048576 "G" 1000000000 "Gi" 1073741824) $unit -}}
{{- printf "%dMiB" (divf (mulf (trimSuffix $unit . | float64) $bytes 0.9) 1048576 | floor | int) -}}
{{- end -}}

{{- define "refract.serviceAccount" -}}
{{- $values := include "refract.values" . | fromJson -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {app.kubernetes.io/name: {{ .name }}, app.kubernetes.io/part-of: refract}
  {{- with $values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- if not $values.serviceAccount.automount }}
automountServiceAccountToken: false
{{- end }}
{{- end -}}

{{/*
A part's Deployment. Templates in the part's file contain the differences and their reasons: refract.PART.replicas, .strategy,
.priority, .args, .memory, .lifecycle and .resources.
*/}}
{{- define "refract.deployment" -}}
{{- $values := include "refract.values" . | fromJson -}}
{{- $of := printf "refract.%s." .part -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {app.kubernetes.io/name: {{ .name }}, app.kubernetes.io/part-of: refract}
spec:
  {{- include (print $of "replicas") . | trim | nindent 2 }}
  replicas: {{ int $values.replicaCount }}
  selector:
    matchLabels: {app.kubernetes.io/name: {{ .name }}}
  {{- with include (print $of "strategy") . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  template:
    metadata:
      labels: {app.kubernetes.io/name: {{ .name }}}
    spec:
      serviceAccountName: {{ .name }}
      {{- if not $values.serviceAccount.automount }}
      automountServiceAccountToken: true
      {{- end }}
      {{- with $values.imagePullSecrets }}
      imagePullSecrets:
      {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- with $values.priorityClassName }}
      {{- with include (print $of "priority") $ | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      priorityClassName: {{ . }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      {{- with $values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations:
      {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- with $values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.topologySpreadConstraints }}
      topologySpreadConstraints:
      {{- range . }}
      {{- if not .labelSelector }}
      {{- $_ := set . "labelSelector" (dict "matchLabels" (dict "app.kubernetes.io/name" $.name)) }}
      {{- end }}
      {{- toYaml (list .) | nindent 6 }}
      {{- end }}
      {{- end }}
      {{- with $values.volumes }}
      volumes:
      {{- toYaml . | nindent 6 }}
      {{- end }}
      containers:
      - name: refract
        image: {{ include "refract.image" (dict "image" $values.image "appVersion" .root.Chart.AppVersion) }}
        {{- with $values.image.pullPolicy }}
        imagePullPolicy: {{ . }}
        {{- end }}
        command: [refract]
        args:
        - run
        {{- with include (print $of "args") . | trim }}
        {{- . | nindent 8 }}
        {{- end }}
        - --webhook-service={{ .root.Release.Namespace }}/{{ .name }}
        - --system-namespace={{ .root.Release.Namespace }}
        - --identity=$(POD_NAME)
        {{- if eq .name "refract" }}
        - --pod-uid=$(POD_UID)
        {{- end }}
        {{- range $values.extraArgs }}
        - {{ toJson . }}
        {{- end }}
        env:
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        {{- if eq .name "refract" }}
        - name: POD_UID
          valueFrom: {fieldRef: {fieldPath: metadata.uid}}
        {{- end }}
        {{- with dig "limits" "memory" "" ($values.resources | default dict) }}
        {{- include (print $of "memory") $ | trim | nindent 8 }}
        - {name: GOMEMLIMIT, value: {{ include "refract.nineTenths" . }}}
        {{- end }}
        ports:
        - {name: metrics, containerPort: 8080}
        - {name: health, containerPort: 8081}
        - {name: webhook, containerPort: 9443}
        livenessProbe:
          httpGet: {path: /healthz, port: health}
          periodSeconds: 10
          failureThreshold: 3
        readinessProbe:
          httpGet: {path: /readyz, port: health}
          periodSeconds: 5
        {{- with include (print $of "lifecycle") . | trim }}
        {{- . | nindent 8 }}
        {{- end }}
        resources:
          {{- include (print $of "resources") . | trim | nindent 10 }}
          {{- toYaml $values.resources | nindent 10 }}
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {drop: [ALL]}
        {{- with $values.volumeMounts }}
        volumeMounts:
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end -}}

{{- define "refract.service" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {app.kubernetes.io/name: {{ .name }}, app.kubernetes.io/part-of: refract}
spec:
  selector: {app.kubernetes.io/name: {{ .name }}}
  ports:
  - {name: webhook, port: 443, targetPort: webhook}
  - {name: metrics, port: 8080, targetPort: metrics}
{{- end -}}

{{/* The text includes the separator line before the document, because the PodDisruptionBudget is optional. */}}
{{- define "refract.podDisruptionBudget" -}}
{{- $values := include "refract.values" . | fromJson -}}
{{- if $values.podDisruptionBudget.enabled -}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {app.kubernetes.io/name: {{ .name }}, app.kubernetes.io/part-of: refract}
spec:
  maxUnavailable: {{ toJson $values.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels: {app.kubernetes.io/name: {{ .name }}}
{{- end -}}
{{- end -}}
