{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* What a user reads after the installation. */}}
{{- define "updraft.notes" -}}
{{- $namespace := .Release.Namespace -}}
Updraft runs. In your Spark jobs:

  spark.jars                                       updraft-spark-<version>_2.13-{{ .Chart.AppVersion }}.jar
  spark.sql.extensions                             io.updraft.spark.UpdraftExtensions
{{- range $name, $values := include "updraft.components" . | fromYaml }}
{{- $scheme := ternary "grpc" "grpc+tls" (eq $values.tls.mode "off") }}
{{- if eq $values.kind "pool" }}

Pool {{ trimPrefix "pool-" $values.component }}:

  spark.updraft.udf.endpoint                       {{ $scheme }}://{{ $name }}.{{ $namespace }}:{{ $values.port }}
{{- if not $values.auth.insecureNoToken }}
{{- $secret := default (include "updraft.tokenSecret" $) $values.auth.existingSecret }}
  spark.updraft.udf.tokenFile                      /etc/updraft/tokens/token
  spark.kubernetes.driver.secrets.{{ $secret }}    /etc/updraft/tokens
  spark.kubernetes.executor.secrets.{{ $secret }}  /etc/updraft/tokens
{{- end }}
{{- end }}
{{- end }}

Watch it:

  kubectl --namespace {{ $namespace }} get pods -l app.kubernetes.io/instance={{ .Release.Name }}
{{- end }}
