{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* Fails for a value of an earlier chart, and says what replaces it. The schema lets these pass, because it could not say that. */}}
{{- define "updraft.checkEarlierValues" -}}
{{- range $place := list "common" "poolDefaults" "writer" -}}
{{- include "updraft.checkEarlierSkew" (dict "place" $place "values" (get $.Values $place)) -}}
{{- end -}}
{{- include "updraft.checkEarlierPool" (dict "place" "poolDefaults" "values" .Values.poolDefaults) -}}
{{- range $name, $values := .Values.pools -}}
{{- $pool := dict "place" (printf "pools.%s" $name) "values" (default dict $values) -}}
{{- include "updraft.checkEarlierSkew" $pool -}}
{{- include "updraft.checkEarlierPool" $pool -}}
{{- end -}}
{{- end }}

{{- define "updraft.checkEarlierSkew" -}}
{{- if hasKey .values "maxSkew" -}}
{{- fail (printf "%s.maxSkew is the maxSkew of each entry of %s.topologySpreadConstraints now" .place .place) -}}
{{- end -}}
{{- end }}

{{- define "updraft.checkEarlierPool" -}}
{{- $place := .place -}}
{{- $values := .values -}}
{{- if not (kindIs "map" (default dict $values.workers)) -}}
{{- fail (printf "%s.workers is %s.workers.count now: `workers: {count: %v}`" $place $place $values.workers) -}}
{{- end -}}
{{- if hasKey $values "allowSessionFunctions" -}}
{{- fail (printf "%s.allowSessionFunctions is %s.workers.sessionFunctions now: true is `unsigned`, false is `off`; `signed` runs only what a driver has signed" $place $place) -}}
{{- end -}}
{{- $both := "%s.%s is of one container now: %s.front.%s for the one that has the port, %s.workers.%s for the one that runs functions" -}}
{{- $halves := dict "workers" (list "functions" "gpu" "volumes") "front" (list "auth" "tls") -}}
{{- range $half, $names := $halves -}}
{{- range $name := $names -}}
{{- if hasKey $values $name -}}
{{- fail (printf "%s.%s is %s.%s.%s now" $place $name $place $half $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name := list "image" "resources" "settings" "env" "envFrom" "volumeMounts" "scratchSize" "scratchRequest" "user" "securityContext" -}}
{{- if hasKey $values $name -}}
{{- fail (printf $both $place $name $place $name $place $name) -}}
{{- end -}}
{{- end -}}
{{- end }}
