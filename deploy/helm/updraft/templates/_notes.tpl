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
  (If Secret {{ $secret }} has more than a job may see, such as other tenants' tokens, give jobs a Secret with the key `token` only.)
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
{{- if include "updraft.runsSessions" . }}

executors-without-python:

  {{ printf "%-48s" "spark.plugins" }} io.updraft.spark.WorkerPlugin
  {{ printf "%-48s" "spark.pyspark.python" }} /opt/updraft/updraft-python
  {{ printf "%-48s" "spark.pyspark.driver.python" }} python3
  (With these, RDDs, Python data sources and stateful streams run on the pool too, and executors need no Python. They need updraft-python
  and the jar in their image: deploy/images/Dockerfile.executor adds both, and docs/guides/executors-without-python.md explains it.)
{{- end }}
{{- with $template }}

job.yaml, a pod template, without the tokens that the job does not use:

{{ . | indent 2 }}

(With this template, a job whose Secret is missing starts, and fails with the name of the missing file. With spark.kubernetes.*.secrets its
pods would wait forever.)
{{- end }}

(By default a JVM caches a name's addresses for 30 seconds. The Java option above lets executors notice new and lost pods sooner.)

{{- with include "updraft.missingProtections" . | trim }}

Protections that are off:
{{ . | nindent 2 }}
{{- end }}

To test and watch it:

  helm test {{ .Release.Name }} --namespace {{ $namespace }} --logs
  updraft status --namespace {{ $namespace }}
  kubectl --namespace {{ $namespace }} get pods -l app.kubernetes.io/instance={{ .Release.Name }}
{{- end }}

{{/* "true" if a pool runs functions of sessions that nobody has signed; else empty. */}}
{{- define "updraft.runsSessions" -}}
{{- range $name, $values := include "updraft.components" . | fromYaml -}}
{{- if and (eq $values.kind "pool") (has $values.sessionFunctions (list "unsigned" "prefer-signed")) }}true{{ end -}}
{{- end -}}
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

{{/* One line for each protection that the values leave off, with what its absence allows. */}}
{{- define "updraft.missingProtections" -}}
{{- range $name, $values := include "updraft.components" . | fromYaml }}
{{- $policy := $values.networkPolicy }}
{{- if $values.auth.insecureNoToken }}
{{ $values.component }}: anyone who can reach it can use it (auth.insecureNoToken).
{{- end }}
{{- $settings := default dict $values.settings }}
{{- if and $values.tokenSecret $values.auth.plainTokens (get $settings "identitiesFile") }}
{{ $values.component }}: a token of the Secret's key `tokens` may act for any tenant, even if the identities file says otherwise (auth.plainTokens).
{{- end }}
{{- if eq (get $settings "allowRemoteDrain" | toString) "true" }}
{{ $values.component }}: anyone who may connect can stop its pods, one after the other (settings.allowRemoteDrain).
{{- end }}
{{- if and (eq $values.kind "pool") (eq (get $settings "allowRemoteStacks" | toString) "true") }}
{{ $values.component }}: anyone who may connect can read the stacks of its workers, which name the code of every tenant (settings.allowRemoteStacks).
{{- end }}
{{- if eq $values.tls.mode "off" }}
{{ $values.component }}: tokens and rows cross the network in plain text (tls.mode is off).
{{- end }}
{{- if and (eq $values.kind "pool") (has $values.sessionFunctions (list "unsigned" "prefer-signed")) }}
{{ $values.component }}: anyone who may connect can run any code in its workers (workers.sessionFunctions).
{{- end }}
{{- if ne $values.service.spec.type "ClusterIP" }}
{{ $values.component }}: clients outside the cluster can reach Service {{ $name }}-cluster (service.spec.type).
{{- end }}
{{- if not $policy.enabled }}
{{ $values.component }}: no NetworkPolicy limits its clients and what its pods can reach (networkPolicy.enabled).
{{- else }}
{{- $beyond := false }}
{{- range $policy.clients }}
{{- if or (hasKey . "ipBlock") (hasKey . "namespaceSelector") }}{{ $beyond = true }}{{ end }}
{{- end }}
{{- if $beyond }}
{{ $values.component }}: the network policy admits clients from outside namespace {{ $.Release.Namespace }} (networkPolicy.clients).
{{- end }}
{{- if kindIs "invalid" $policy.observers }}
{{ $values.component }}: every pod of the cluster can read its metrics and status, which name functions and tasks (networkPolicy.observers).
{{- end }}
{{- if kindIs "invalid" $policy.egress }}
{{ $values.component }}: its pods can reach the cloud's metadata service, and so the node's credentials (networkPolicy.egress).
{{- end }}
{{- end }}
{{- if get $values "executorSidecar" }}
{{ $values.component }}-sidecar: every container of an executor's pod that mounts its socket can use it, without a token or an identity{{ if $policy.enabled }}, and this release's NetworkPolicy does not select that pod{{ end }} (executorSidecar).
{{- end }}
{{- end }}
{{- end }}
