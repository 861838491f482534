{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/*
A pod template for Spark's executors with a pool of their own beside them: (dict "root" $ "name" the pool's name "values" its
values). Both halves are native sidecars: the workers' first, then the front, and the executor once the front is ready. The front
ends before the workers when the executor has ended. Only the executor and the front see the socket.
*/}}
{{- define "updraft.sidecar" -}}
{{- $socket := dict "name" "pool-socket" "mountPath" "/run/updraft-pool" -}}
{{- $listens := dict "listen" "" "listenUnix" "/run/updraft-pool/pool.sock" "listenUnixAccess" "group" "metricsListen" "127.0.0.1:9825" -}}
{{- /* Who may connect is decided by who sees the socket: tokens, certificates and lists of names stay with the pool's own pods. */}}
{{- $values := mergeOverwrite (deepCopy .values) (dict "auth" (dict "insecureNoToken" true) "tls" (dict "mode" "off") "tokenSecret" "") -}}
{{- $settings := omit (default dict $values.settings) "identitiesFile" "metricsTokenFile" "auditFile" -}}
{{- /* Its volume may be one that a single node mounts; the log of the front's container is there in every pod. */}}
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
  {{- /* Kubernetes would mount it into every container: functions would have it. Executors do not ask the API server. */}}
  automountServiceAccountToken: false
  {{- /* As the restricted Pod Security Standard wants every pod, the executor's container too. */}}
  securityContext:
    runAsNonRoot: true
    seccompProfile: {type: RuntimeDefault}
    {{- with $values.user }}
    {{- /* What the front and the workers share, and the front and the executor. */}}
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
      emptyDir:
        sizeLimit: 1Mi
    {{- include "updraft.volumes" (dict "root" .root "name" .name "values" $values) | trim | nindent 4 }}
    {{- with dig "spec" "volumes" list $values.podTemplate }}{{ toYaml . | nindent 4 }}{{ end }}
{{- end }}
