{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/*
A pod template that gives each of Spark's executors a pool of its own: (dict "root" $ "name" the pool's name "values" its values).
The pool's two containers are native sidecars. The workers start first, then the front, and the executor once the front is ready.
When the executor has ended, the front ends before the workers. Only the executor and the front see the socket, and the segments beside it.
*/}}
{{- define "updraft.sidecar" -}}
{{- $socket := dict "name" "pool-socket" "mountPath" "/run/updraft-pool" -}}
{{- $listens := dict "listen" "" "listenUnix" "/run/updraft-pool/pool.sock" "listenUnixAccess" "group" "metricsListen" "127.0.0.1:9825" -}}
{{- /* Everything that sees the socket may connect, so tokens, certificates and the identities file stay with the pool's own pods. */}}
{{- $values := mergeOverwrite (deepCopy .values) (dict "auth" (dict "insecureNoToken" true) "tls" (dict "mode" "off") "tokenSecret" "") -}}
{{- $settings := omit (default dict $values.settings) "identitiesFile" "metricsTokenFile" "auditFile" -}}
{{- /* The audit file's volume may be one that only a single node can mount, so write to the log of the front's container. */}}
{{- if get (default dict $values.settings) "auditFile" -}}{{- $_ := set $settings "auditFile" "-" -}}{{- end -}}
{{- $_ := set $values "settings" $settings -}}
{{- $containers := list -}}
{{- range $container := reverse $values.containers -}}
{{- $own := $container.values -}}
{{- if $container.listens -}}
{{- $_ := set $container "settings" (merge (deepCopy $listens) $container.settings) -}}
{{- $users := default dict $own.container -}}
{{- $_ := set $own "container" (merge (dict "volumeMounts" (append (default list $users.volumeMounts) $socket)) $users) -}}
{{- end -}}
{{- $made := include "updraft.container" (dict "root" $.root "values" $values "container" $container) | fromYaml -}}
{{- $containers = append $containers (set (omit $made "lifecycle" "ports" "readinessProbe") "restartPolicy" "Always") -}}
{{- end -}}
apiVersion: v1
kind: Pod
spec:
  {{- /* Kubernetes would mount the token into every container, where functions could read it. Executors do not need it, because
  they do not call the API server. */}}
  automountServiceAccountToken: false
  {{- /* The restricted Pod Security Standard requires these fields for every container, including the executor's. */}}
  securityContext:
    runAsNonRoot: true
    seccompProfile: {type: RuntimeDefault}
    {{- with $values.user }}
    {{- /* Group of the volumes that the front shares with the workers and with the executor. */}}
    fsGroup: {{ . }}
    {{- end }}
  initContainers: {{- toYaml $containers | nindent 4 }}
  containers:
    - name: spark-kubernetes-executor
      securityContext:
        allowPrivilegeEscalation: false
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {{- toYaml $socket | nindent 10 }}
  volumes:
    - name: pool-socket
      {{- /* Segments take up to 8 MiB of the front's memory for each task. Beyond this limit, batches travel over the connection. */}}
      emptyDir:
        medium: Memory
        sizeLimit: 512Mi
    {{- include "updraft.volumes" (dict "root" .root "name" .name "values" $values) | trim | nindent 4 }}
    {{- with dig "spec" "volumes" list $values.podTemplate }}{{ toYaml . | nindent 4 }}{{ end }}
{{- end }}
