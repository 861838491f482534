{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* The pod of a component: (dict "root" $ "name" its name "values" its values) */}}
{{- define "updraft.pod" -}}
{{- $values := .values -}}
serviceAccountName: {{ include "updraft.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if and $values.gpu.count $values.gpu.runtimeClassName }}
runtimeClassName: {{ $values.gpu.runtimeClassName }}
{{- end }}
terminationGracePeriodSeconds: {{ add $values.drainTimeoutSeconds $values.preStopSeconds 15 }}
securityContext:
  runAsNonRoot: true
  {{- with $values.user }}
  fsGroup: {{ . }}
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
containers:
  {{- range $container := $values.containers }}
  - {{ include "updraft.container" (dict "root" $.root "values" $values "container" $container) | nindent 4 | trim }}
  {{- end }}
volumes:
  {{- range $values.containers }}
  {{- with .directory }}
  - name: {{ .volume }}
    emptyDir:
      sizeLimit: {{ .size }}
  {{- end }}
  {{- /* What no other container of the pod sees: a token. */}}
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
  {{- with $values.volumes }}{{ toYaml . | nindent 2 }}{{ end }}
topologySpreadConstraints:
  - topologyKey: kubernetes.io/hostname
    maxSkew: {{ $values.maxSkew }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "updraft.selector" (dict "root" .root "component" $values.component) | nindent 8 }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
