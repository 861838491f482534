{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* Text that Helm prints after an installation or upgrade. */}}
{{- define "updraft.notes" -}}
{{- $namespace := .Release.Namespace -}}
{{- $template := include "updraft.jobTemplate" . | trim -}}
Updraft is installed. Set this in your Spark jobs:

  spark.jars                                       updraft-spark-<version>_<scala>-{{ .Chart.AppVersion }}.jar
  spark.sql.extensions                             io.updraft.spark.UpdraftExtensions
  spark.executor.extraJavaOptions                  -Dsun.net.inetaddr.ttl=5
{{- if $template }}
  spark.kubernetes.driver.podTemplateFile          job.yaml
  spark.kubernetes.executor.podTemplateFile        job.yaml
{{- end }}
{{- with .Values.tracing.endpoint }}
  spark.updraft.trace.endpoint                     {{ . }}
{{- end }}
{{- range $name, $values := include "updraft.components" . | fromYaml }}
{{- $conf := ternary "spark.updraft.udf" "spark.updraft.write" (eq $values.kind "pool") }}
{{- $scheme := ternary "grpc" "grpc+tls" (eq $values.tls.mode "off") }}

{{ $values.component }}:

  {{ printf "%-48s" (printf "%s.endpoint" $conf) }} {{ $scheme }}://{{ $name }}.{{ $namespace }}:{{ $values.port }}
{{- with $secret := $values.tokenSecret }}
  {{ printf "%-48s" (printf "%s.tokenFile" $conf) }} /etc/updraft/{{ $secret }}/token
{{- with without $values.clientNamespaces $namespace }}
  (Also for jobs in {{ join ", " . }}{{ if not $values.auth.existingSecret }}, where a Job puts a Secret of that name with the token{{ end }}.)
{{- end }}
{{- if $values.auth.existingSecret }}
  (If Secret {{ $secret }} says more than a job may know, such as tokens of others, give jobs one that has the key `token` alone.)
{{- end }}
{{- end }}
{{- if ne $values.tls.mode "off" }}
{{- with $values.tls.authorityKey }}
  {{ printf "%-48s" (printf "%s.tls.caFile" $conf) }} /etc/updraft/authority/ca.crt
{{- end }}
{{- if $values.tls.clientCertificates }}
  {{ printf "%-48s" (printf "%s.tls.certificateFile" $conf) }} /etc/updraft/identity/tls.crt
  {{ printf "%-48s" (printf "%s.tls.keyFile" $conf) }} /etc/updraft/identity/tls.key
{{- end }}
  (Do not mount Secret {{ include "updraft.certificateSecret" (dict "name" $name "values" $values) }} into jobs: it has the service's private key.
  {{- if $values.tls.authorityKey }} Copy its {{ $values.tls.authorityKey }} to a Secret for jobs.{{ end }})
{{- end }}
{{- if and (eq $values.kind "writer") (not $values.roots) }}
  {{ printf "%-48s" "spark.updraft.write.delivery" }} return
{{- end }}
{{- end }}
{{- range $name, $values := include "updraft.components" . | fromYaml }}
{{- if $values.executorSidecar }}

{{ $values.component }}-sidecar:

  {{ printf "%-48s" "spark.updraft.udf.endpoint" }} grpc+unix:///run/updraft-pool/pool.sock
  {{ printf "%-48s" "spark.kubernetes.executor.podTemplateFile" }} executor.yaml
  (kubectl --namespace {{ $namespace }} get configmap {{ $name }}-sidecar --output go-template='{{ "{{" }}index .data "executor.yaml"{{ "}}" }}' > executor.yaml)
{{- end }}
{{- end }}
{{- with $template }}

job.yaml, a pod template, without the tokens that the job does not use:

{{ . | indent 2 }}

(A job whose Secret is missing starts with it, and fails with the name of the file. With spark.kubernetes.*.secrets its pods would wait.)
{{- end }}

(By default a JVM caches a name's addresses for 30 seconds. The Java option above lets executors notice new and lost pods sooner.)

{{- with include "updraft.openDoors" . | trim }}

Open doors:
{{ . | nindent 2 }}
{{- end }}

To test and watch it:

  helm test {{ .Release.Name }} --namespace {{ $namespace }} --logs
  updraft status --namespace {{ $namespace }}
  kubectl --namespace {{ $namespace }} get pods -l app.kubernetes.io/instance={{ .Release.Name }}
{{- end }}

{{/* A pod template for Spark's drivers and executors that mounts each token; empty if there are no tokens. */}}
{{- define "updraft.jobTemplate" -}}
{{- $mounts := list -}}
{{- $volumes := list -}}
{{- $seen := dict -}}
{{- range $name, $values := include "updraft.components" . | fromYaml -}}
{{- with $secret := $values.tokenSecret -}}
{{- if not (hasKey $seen $secret) -}}
{{- $_ := set $seen $secret true -}}
{{- $mounts = append $mounts (printf "- {name: %s, mountPath: /etc/updraft/%s, readOnly: true}" $values.component $secret) -}}
{{- $volumes = append $volumes (printf "- {name: %s, secret: {secretName: %s, optional: true}}" $values.component $secret) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $mounts -}}
apiVersion: v1
kind: Pod
spec:
  containers:
    - name: spark
      volumeMounts:
        {{- range $mounts }}
        {{ . }}
        {{- end }}
  volumes:
    {{- range $volumes }}
    {{ . }}
    {{- end }}
{{- end -}}
{{- end }}

{{/* One line for each protection that the values leave off, with what that allows. */}}
{{- define "updraft.openDoors" -}}
{{- range $name, $values := include "updraft.components" . | fromYaml }}
{{- $policy := $values.networkPolicy }}
{{- if $values.auth.insecureNoToken }}
{{ $values.component }}: anybody who reaches it can use it (auth.insecureNoToken).
{{- end }}
{{- $settings := default dict $values.settings }}
{{- if and $values.tokenSecret $values.auth.plainTokens (get $settings "identitiesFile") }}
{{ $values.component }}: who has a token of the key `tokens` acts for any tenant, whatever the identities file says (auth.plainTokens).
{{- end }}
{{- if eq (get $settings "allowRemoteDrain" | toString) "true" }}
{{ $values.component }}: whoever may connect stops its pods, one after the other (settings.allowRemoteDrain).
{{- end }}
{{- if and (eq $values.kind "pool") (eq (get $settings "allowRemoteStacks" | toString) "true") }}
{{ $values.component }}: whoever may connect reads the stacks of its workers, which name the code of every tenant (settings.allowRemoteStacks).
{{- end }}
{{- if eq $values.tls.mode "off" }}
{{ $values.component }}: tokens and rows cross the network in plain text (tls.mode is off).
{{- end }}
{{- if and (eq $values.kind "pool") (has $values.sessionFunctions (list "unsigned" "prefer-signed")) }}
{{ $values.component }}: who may connect runs code of its own in its workers (workers.sessionFunctions).
{{- end }}
{{- if ne $values.service.spec.type "ClusterIP" }}
{{ $values.component }}: Service {{ $name }}-cluster is reached from outside the cluster (service.spec.type).
{{- end }}
{{- if not $policy.enabled }}
{{ $values.component }}: no NetworkPolicy limits who connects, and what its pods reach (networkPolicy.enabled).
{{- else }}
{{- $beyond := false }}
{{- range $policy.clients }}
{{- if or (hasKey . "ipBlock") (hasKey . "namespaceSelector") }}{{ $beyond = true }}{{ end }}
{{- end }}
{{- if $beyond }}
{{ $values.component }}: the network policy admits clients from outside namespace {{ $.Release.Namespace }} (networkPolicy.clients).
{{- end }}
{{- if kindIs "invalid" $policy.observers }}
{{ $values.component }}: any machine of the cluster reads metrics and status, which name functions and tasks (networkPolicy.observers).
{{- end }}
{{- if kindIs "invalid" $policy.egress }}
{{ $values.component }}: its pods reach the cloud's metadata service, and with it credentials of the node (networkPolicy.egress).
{{- end }}
{{- end }}
{{- if get $values "executorSidecar" }}
{{ $values.component }}-sidecar: everything in an executor's pod that has its socket uses it, without a token or an identity{{ if $policy.enabled }}, and this release's NetworkPolicy does not select that pod{{ end }} (executorSidecar).
{{- end }}
{{- end }}
{{- end }}
