{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/*
The pod of a component, with the additions and replacements of the `spec` in the user's `podTemplate`:
(dict "root" $ "name" its name "values" its values)
*/}}
{{- define "updraft.pod" -}}
{{- $made := include "updraft.ownPod" . | fromYaml -}}
{{- $users := deepCopy (default dict .values.podTemplate.spec) -}}
{{- range $list := list "containers" "initContainers" "volumes" -}}
{{- with concat (get $made $list | default list) (get $users $list | default list) -}}{{- $_ := set $users $list . -}}{{- end -}}
{{- end -}}
{{- $selector := dict "matchLabels" (include "updraft.selector" (dict "root" .root "component" .values.component) | fromYaml) -}}
{{- $spread := list -}}
{{- range $users.topologySpreadConstraints -}}
{{- $spread = append $spread (set . "labelSelector" (default $selector .labelSelector)) -}}
{{- end -}}
{{- $_ := set $users "topologySpreadConstraints" (default nil $spread) -}}
{{- include "updraft.replaced" (list $made $users) -}}
{{- end }}

{{- define "updraft.ownPod" -}}
{{- $values := .values -}}
serviceAccountName: {{ include "updraft.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- /* The last seconds are for the front to end exchanges that the drain left and to tell their clients, and for the workers'
  container to end after the front. */}}
terminationGracePeriodSeconds: {{ add $values.drainTimeoutSeconds (include "updraft.preStopSeconds" .) 15 }}
{{- $restricted := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- with $values.user }}{{ $_ := set $restricted "fsGroup" . }}{{ end }}
securityContext: {{- toYaml $restricted | nindent 2 }}
containers:
  {{- range $container := $values.containers }}
  - {{ include "updraft.container" (dict "root" $.root "values" $values "container" $container) | nindent 4 | trim }}
  {{- end }}
volumes: {{- include "updraft.volumes" . | trim | nindent 2 }}
{{- end }}

{{/* The chart's fields with the user's merged over them, without fields that are null: (list chart's user's) */}}
{{- define "updraft.replaced" -}}
{{- mergeOverwrite (deepCopy (first .)) (deepCopy (default dict (last .))) | dict "fields" | include "updraft.withoutNulls" -}}
{{- end }}

{{- define "updraft.withoutNulls" -}}
{{- $kept := dict -}}
{{- range $field, $value := .fields -}}
{{- if kindIs "map" $value -}}
{{- $_ := set $kept $field (include "updraft.withoutNulls" (dict "fields" $value) | fromYaml) -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $_ := set $kept $field $value -}}
{{- end -}}
{{- end -}}
{{- toYaml $kept -}}
{{- end }}

{{/* Volumes of a component's pod, except those that users add: (dict "root" $ "name" its name "values" its values) */}}
{{- define "updraft.volumes" -}}
{{- $values := .values -}}
{{- range $values.containers }}
{{- with .directory }}
- name: {{ .volume }}
  emptyDir:
    sizeLimit: {{ .size }}
{{- end }}
{{- /* Volume for a token that no other container of the pod may see. */}}
{{- with .temporary }}
- name: {{ .volume }}
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
{{- end }}
{{- end }}
{{- with $values.tokenSecret }}
- name: tokens
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- if ne $values.tls.mode "off" }}
- name: tls
  secret:
    secretName: {{ include "updraft.certificateSecret" . }}
    defaultMode: 0440
{{- end }}
{{- with $values.signers }}
- name: signers
  configMap:
    name: {{ . }}
{{- end }}
{{- with dig "functions" "configMap" "" $values }}
- name: functions
  configMap:
    name: {{ . }}
{{- end }}
{{- end }}
