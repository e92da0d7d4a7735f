{{/* All objects have names of their own, not the release's: one installation serves a whole cluster. */}}

{{- define "elbowroom.labels" -}}
app.kubernetes.io/part-of: elbowroom
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* An image's full name: (list $ .Values.operator.image) */}}
{{- define "elbowroom.image" -}}
{{- $root := index . 0 -}}{{- $image := index . 1 -}}
{{- with $root.Values.image.registry }}{{ . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default $root.Chart.AppVersion $image.tag }}{{ end }}
{{- end }}

{{/* What the restricted Pod Security Standard asks of a container, and a root that cannot be written. */}}
{{- define "elbowroom.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "elbowroom.podSecurity" -}}
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Where pods of ours run. The taint of a held node does not keep them away: it is the operator that takes it off. */}}
{{- define "elbowroom.placed" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
tolerations:
- {key: elbowroom.dev/held, operator: Exists}
{{- with .tolerations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Keep replicas apart, so that a node takes one of them with it at most: "operator" */}}
{{- define "elbowroom.apart" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
  - weight: 100
    podAffinityTerm:
      topologyKey: kubernetes.io/hostname
      labelSelector: {matchLabels: {app.kubernetes.io/name: elbowroom-{{ . }}}}
{{- end }}

{{/* The accounts of schedulers that keep to holds by themselves, as JSON. */}}
{{- define "elbowroom.schedulers" -}}
{{- $known := dict
  "beside" (printf "system:serviceaccount:%s:elbowroom-scheduler" .Release.Namespace)
  "replace" (printf "system:serviceaccount:%s:elbowroom-scheduler" .Release.Namespace)
  "extender" (printf "system:serviceaccount:%s:elbowroom-extender" .Release.Namespace)
  "external" "system:kube-scheduler" -}}
{{- concat (list (get $known .Values.scheduler.mode)) .Values.guard.schedulers | uniq | toJson -}}
{{- end }}

{{/* Whether another scheduler places pods on the same nodes. */}}
{{- define "elbowroom.taint" -}}
{{- if kindIs "bool" .Values.taint }}{{ .Values.taint }}{{ else }}{{ eq .Values.scheduler.mode "beside" }}{{ end -}}
{{- end }}

{{/* Of each kind of certificate another one: whom it trusts is written by the operator, by cert-manager or by helm, and the
next writer would be refused what the one before has written. */}}
{{- define "elbowroom.guardConfiguration" -}}
{{- get (dict "own" "elbowroom-guard" "certManager" "elbowroom-guard-cert-manager" "secret" "elbowroom-guard-secret") .Values.guard.certificate.mode -}}
{{- end }}

{{/* The guard is not asked about its own pods, nor, with failurePolicy Fail, about those of kube-system, without which it cannot
run: a guard that is down would stay down. What the operator tries in order to know that it is asked comes from here as well. */}}
{{- define "elbowroom.notOurselves" -}}
- name: not-what-the-guard-itself-needs
  expression: >-
    !(request.namespace in {{ eq .Values.guard.failurePolicy "Fail" | ternary (list "kube-system" .Release.Namespace) (list .Release.Namespace) | toJson }})
    || (has(object.metadata.name) && object.metadata.name == 'elbowroom-guard-probe')
{{- end }}

{{- define "elbowroom.guardSecret" -}}
{{- if eq .Values.guard.certificate.mode "certManager" }}elbowroom-guard-tls{{ else }}{{ .Values.guard.certificate.secretName }}{{ end -}}
{{- end }}

{{/* The operator's configuration file. What the chart decides is not in operator.config: the schema does not take it there. */}}
{{- define "elbowroom.config" -}}
{{- $config := mergeOverwrite (deepCopy .Values.operator.config) (dict "taint" (eq (include "elbowroom.taint" .) "true")) -}}
{{- if eq .Values.scheduler.mode "beside" }}{{ $_ := set $config "scheduler" .Values.scheduler.name }}{{ end -}}
{{- if .Values.guard.enabled -}}
{{- $guard := dict "schedulers" (include "elbowroom.schedulers" . | fromJsonArray) -}}
{{- if ne .Values.guard.certificate.mode "own" }}{{ $_ := set $guard "certificate" "/etc/elbowroom/guard" }}{{ end -}}
{{- $_ := set $guard "port" (int .Values.guard.port) -}}
{{- $_ := set $config "guard" $guard -}}
{{- end -}}
{{- if .Values.page.enabled }}{{ $_ := set $config "page" (dict "hosts" .Values.page.hosts) }}{{ end -}}
{{ toYaml $config }}
{{- end }}

{{- define "elbowroom.schedulerConfig" }}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  leaseDuration: {{ .Values.scheduler.leaseDuration }}
  renewDeadline: {{ .Values.scheduler.renewDeadline }}
  {{- if eq .Values.scheduler.mode "beside" }}
  resourceName: elbowroom-scheduler
  resourceNamespace: {{ .Release.Namespace }}
  {{- end }}
profiles:
- schedulerName: {{ eq .Values.scheduler.mode "replace" | ternary "default-scheduler" .Values.scheduler.name }}
  plugins:
    multiPoint:
      enabled:
      - name: Elbowroom
        weight: 10
      - name: ElbowroomPreemption
      disabled:
      - name: DefaultPreemption
  pluginConfig:
  - name: Elbowroom
    args: {{- toYaml .Values.scheduler.args | nindent 6 }}
{{- end }}

{{- define "elbowroom.egress" }}
- ports:
  - {port: 53, protocol: UDP}
  - {port: 53, protocol: TCP}
  {{- range .Values.networkPolicy.apiServerPorts }}
  - {port: {{ . }}, protocol: TCP}
  {{- end }}
{{- end }}

{{/* A duration such as 1h30m, in whole seconds. */}}
{{- define "elbowroom.seconds" -}}
{{- $seconds := 0 -}}
{{- range regexFindAll "[0-9]+(h|ms|m|s)" . -1 -}}
{{- $number := regexFind "[0-9]+" . | int -}}
{{- $seconds = add $seconds (mul $number (get (dict "h" 3600 "m" 60 "s" 1 "ms" 0) (regexFind "[a-z]+" .))) -}}
{{- end -}}
{{ $seconds }}
{{- end }}

{{- define "elbowroom.hook" }}
helm.sh/hook: pre-delete
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end }}
