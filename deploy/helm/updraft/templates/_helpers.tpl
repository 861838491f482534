{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{- define "updraft.name" -}}
{{- .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "updraft.fullname" -}}
{{- $name := include "updraft.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/*
Values of every component, by the name of the resources that it makes. A component's own values override those of its kind,
which override the common ones. All templates range over this dict, so a pool and the writer differ only in what it contains.
A pool's entry has the values of its front and workers merged. Each of its containers has its own values alone.
*/}}
{{- define "updraft.components" -}}
{{- $root := . -}}
{{- $components := dict -}}
{{- range $name, $values := .Values.pools -}}
{{- /* Skip pools that are set to null: Helm itself removes only those that the chart's own values name. */ -}}
{{- if not (kindIs "invalid" $values) -}}
{{- if not (regexMatch "^[a-z]([a-z0-9-]{0,18}[a-z0-9])?$" $name) -}}
{{- fail (printf "pools.%s: the name of a pool is part of the names of its resources: use at most 20 lowercase letters, digits and hyphens, beginning with a letter and not ending with a hyphen" $name) -}}
{{- end -}}
{{- $pool := mergeOverwrite (deepCopy $root.Values.poolDefaults) (deepCopy $values) -}}
{{- $places := dict "common.settings" $root.Values.common.settings "front.settings" $pool.front.settings "workers.settings" $pool.workers.settings -}}
{{- include "updraft.checkSettings" (dict "root" $root "component" (printf "pool-%s" $name) "places" $places) -}}
{{- $own := mergeOverwrite (deepCopy $root.Values.common) (deepCopy (omit $pool "front" "workers")) (deepCopy $pool.front) (deepCopy $pool.workers) -}}
{{- $front := mergeOverwrite (deepCopy $root.Values.common) (deepCopy (omit $pool "front" "workers")) (deepCopy $pool.front) -}}
{{- $workers := mergeOverwrite (deepCopy $root.Values.common) (deepCopy (omit $pool "front" "workers")) (deepCopy $pool.workers) -}}
{{- $default := $root.Values.poolDefaults -}}
{{- $layers := list $root.Values.common.image $default.workers.image (dig "workers" "image" dict $values) -}}
{{- $_ := set $workers "image" (include "updraft.imageOf" $layers | fromYaml) -}}
{{- $_ := set $own "image" $workers.image -}}
{{- $_ := set $front "image" (include "updraft.imageOf" (concat $layers (list $default.front.image (dig "front" "image" dict $values))) | fromYaml) -}}
{{- $own = set $own "user" $front.user -}}
{{- $fronts := dict "volume" "front" "path" "/run/updraft" "size" $front.scratchSize -}}
{{- $scratch := dict "volume" "scratch" "path" "/tmp" "size" $workers.scratchSize -}}
{{- $containers := list
  (dict "name" "front" "command" "front" "values" $front "listens" true "directory" $fronts "temporary" (dict "volume" "front-temporary" "path" "/tmp") "settings" (dict "runtimeDirectory" "/run/updraft/front"))
  (dict "name" "workers" "command" "workers" "values" $workers "listens" false "directory" $scratch "reads" $fronts "settings" (dict "runtimeDirectory" "/tmp/updraft" "frontDirectory" "/run/updraft/front" "sharedMemory" "pool"))
-}}
{{- $fullname := printf "%s-pool-%s" (include "updraft.fullname" $root) $name -}}
{{- $fixed := dict "kind" "pool" "containers" $containers "component" (printf "pool-%s" $name) "port" 8815 "waitingMetric" "updraft_exchanges_waiting" "frontScratchSize" $front.scratchSize -}}
{{- $_ := set $fixed "tokenSecret" (include "updraft.tokenSecret" (dict "name" $fullname "auth" $own.auth)) -}}
{{- $_ := set $components $fullname (merge $fixed $own) -}}
{{- end -}}
{{- end -}}
{{- if .Values.writer.enabled -}}
{{- $places := dict "common.settings" .Values.common.settings "writer.settings" .Values.writer.settings -}}
{{- include "updraft.checkSettings" (dict "root" . "component" "writer" "places" $places) -}}
{{- $own := mergeOverwrite (deepCopy .Values.common) (deepCopy .Values.writer) -}}
{{- $_ := set $own "image" (include "updraft.imageOf" (list .Values.common.image .Values.writer.image) | fromYaml) -}}
{{- $scratch := dict "volume" "scratch" "path" "/tmp" "size" $own.scratchSize -}}
{{- $containers := list (dict "name" "writer" "command" "serve" "values" (deepCopy $own) "listens" true "directory" $scratch) -}}
{{- $fullname := printf "%s-writer" (include "updraft.fullname" .) -}}
{{- $fixed := dict "kind" "writer" "containers" $containers "component" "writer" "port" 8816 "waitingMetric" "updraft_writer_batches_waiting" -}}
{{- $_ := set $fixed "tokenSecret" (include "updraft.tokenSecret" (dict "name" $fullname "auth" $own.auth)) -}}
{{- $_ := set $components $fullname (merge $fixed $own) -}}
{{- end -}}
{{- toYaml $components -}}
{{- end }}

{{/* Fails unless a pool says whether it runs functions that sessions ship, and names signers if and only if it checks signatures. */}}
{{- define "updraft.checkSessionFunctions" -}}
{{- if not .sessionFunctions -}}
{{- fail (printf "%s: say whether it runs functions that Spark sessions ship (poolDefaults.workers.sessionFunctions): `off` runs registered functions alone; `unsigned` lets everybody with a token run code in the pods; `signed` runs only what a driver has signed, with a key that front.signers names" .component) -}}
{{- end -}}
{{- if ne (not .signers) (not (has .sessionFunctions (list "signed" "prefer-signed"))) -}}
{{- fail (printf "%s: front.signers, a ConfigMap of the drivers whose signatures count, goes with workers.sessionFunctions `signed` or `prefer-signed`, and these with it" .component) -}}
{{- end -}}
{{- end }}

{{/*
Fails if a setting is in a place of the values that does not take it: (dict "root" $ "component" "pool-default" "places"
(dict "front.settings" settings ...)). settings.yaml lists the settings that each place takes.
*/}}
{{- define "updraft.checkSettings" -}}
{{- $component := .component -}}
{{- $known := .root.Files.Get "settings.yaml" | fromYaml -}}
{{- range $place, $settings := .places -}}
{{- range $setting := keys (default dict $settings) | sortAlpha -}}
{{- $value := get $known.chart $setting -}}
{{- if $value -}}
{{- fail (printf "%s: %s.%s cannot be set: the chart sets it from %s" $component $place $setting $value) -}}
{{- else if not (has $setting (get $known $place)) -}}
{{- $elsewhere := list -}}
{{- range $other := without (keys $known) "chart" "containers" $place | sortAlpha -}}
{{- if has $setting (get $known $other) -}}{{- $elsewhere = append $elsewhere $other -}}{{- end -}}
{{- end -}}
{{- fail (printf "%s: %s has no setting %s: %s" $component $place $setting (ternary (printf "set it in %s" (join " or " $elsewhere)) "it is not in the reference of settings" (gt (len $elsewhere) 0))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Labels that stay the same for the life of a release: (dict "root" $ "component" "pool-default") */}}
{{- define "updraft.selector" -}}
app.kubernetes.io/name: {{ include "updraft.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Labels of a resource: (dict "root" $ "component" "pool-default" "more" the user's labels for this kind of resource) */}}
{{- define "updraft.labels" -}}
{{- $own := dict
  "app.kubernetes.io/part-of" "updraft"
  "app.kubernetes.io/version" .root.Chart.AppVersion
  "app.kubernetes.io/managed-by" .root.Release.Service
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_") -}}
{{- toYaml (merge (include "updraft.selector" . | fromYaml) $own (default dict .more) .root.Values.commonLabels) -}}
{{- end }}

{{/*
An image merged from several places, of which later ones override earlier ones. A digest belongs to one image, so a place that
names another registry, repository or tag drops an earlier digest.
*/}}
{{- define "updraft.imageOf" -}}
{{- with (first .).digest -}}
{{- fail (printf "common.image.digest is %s, but a pool's image and the writer's are two: set poolDefaults.workers.image.digest and writer.image.digest" .) -}}
{{- end -}}
{{- $image := dict -}}
{{- range . -}}
{{- $digest := ternary "" (get $image "digest") (or (hasKey . "registry") (hasKey . "repository") (hasKey . "tag")) -}}
{{- $image = mergeOverwrite $image (dict "digest" $digest) (deepCopy .) -}}
{{- end -}}
{{- toYaml $image -}}
{{- end }}

{{- define "updraft.image" -}}
{{- $path := list .image.registry .image.repository | compact | join "/" -}}
{{- if not (contains "/" $path) -}}
{{- fail (printf "where is the image %s? Build it with `make images`, push it to a registry that the nodes pull from, and name that: common.image.registry=registry.example/data" $path) -}}
{{- end -}}
{{- if .image.digest -}}{{- printf "%s@%s" $path .image.digest -}}{{- else -}}
{{- printf "%s:%s" $path (default .appVersion .image.tag) -}}
{{- end -}}
{{- end }}

{{/*
Name of the Secret with a component's tokens, which no other component accepts: (dict "name" its name "auth" its `auth`).
Empty for a component that needs no tokens.
*/}}
{{- define "updraft.tokenSecret" -}}
{{- if not .auth.insecureNoToken -}}
{{- default (ternary (printf "%s-token" .name) "" .auth.plainTokens) .auth.existingSecret -}}
{{- end -}}
{{- end }}

{{/* Number of bytes in a quantity such as 10Gi. */}}
{{- define "updraft.bytes" -}}
{{- $units := dict "" 1 "k" 1000 "K" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- mulf (regexFind "^[0-9.]+" . | float64) (get $units (regexReplaceAll "^[0-9.]+" . "")) | int64 -}}
{{- end }}

{{- define "updraft.certificateSecret" -}}
{{- if eq .values.tls.mode "certManager" -}}{{ .name }}-tls{{- else -}}
{{- required (printf "%s: tls.secretName names no Secret, and tls.mode is secret" .values.component) .values.tls.secretName -}}
{{- end -}}
{{- end }}

{{- define "updraft.serviceAccount" -}}
{{- default .name .values.serviceAccount.name -}}
{{- end }}
