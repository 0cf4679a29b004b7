{{/* Name of the application in labels. */}}
{{- define "numa-enforcer.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of the objects: of the release, and of the chart where that does not contain it. */}}
{{- define "numa-enforcer.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "numa-enforcer.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels by which pods are selected: they cannot change in the life of a DaemonSet. */}}
{{- define "numa-enforcer.selectorLabels" -}}
app.kubernetes.io/name: {{ include "numa-enforcer.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "numa-enforcer.labels" -}}
{{ include "numa-enforcer.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "numa-enforcer.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "numa-enforcer.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "numa-enforcer.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* An address and a port as one word; takes both as a dict. */}}
{{- define "numa-enforcer.listen" -}}
{{- if contains ":" .address -}}
{{- printf "[%s]:%d" .address (int .port) -}}
{{- else -}}
{{- printf "%s:%d" .address (int .port) -}}
{{- end -}}
{{- end -}}

{{/* Whether an init container writes the seccomp profile: any text means yes. */}}
{{- define "numa-enforcer.installsSeccomp" -}}
{{- if and .Values.seccomp.install (eq .Values.seccomp.type "Localhost") (not .Values.nonRoot) -}}
yes
{{- end -}}
{{- end -}}

{{/* Whether systemd's socket is mounted into the daemon: any text means yes. */}}
{{- define "numa-enforcer.usesSystemd" -}}
{{- if and .Values.systemd.enabled (eq .Values.mode "enforce") -}}
yes
{{- end -}}
{{- end -}}

{{/* Whether the daemon prepares claims (dra.enabled): any text means yes. The mode restore passes over the value, so
that a release is put back by its mode alone. */}}
{{- define "numa-enforcer.preparesClaims" -}}
{{- if and .Values.dra.enabled (eq .Values.mode "enforce") -}}
yes
{{- end -}}
{{- end -}}

{{/* Whether the daemon asks the API server, by an account with a role: any text means yes. */}}
{{- define "numa-enforcer.asksApiServer" -}}
{{- if or .Values.cluster.publish (include "numa-enforcer.preparesClaims" .) -}}
yes
{{- end -}}
{{- end -}}

{{/* Where the daemon has the kubelet's folder. The kubelet connects to sockets of claims by the path that the daemon
names, which then has to be that of the node. */}}
{{- define "numa-enforcer.kubeletPath" -}}
{{- ternary .Values.kubelet.rootDir "/var/lib/kubelet" (eq (include "numa-enforcer.preparesClaims" .) "yes") -}}
{{- end -}}

{{/* The daemon's configuration: that of the user, then what values set. */}}
{{- define "numa-enforcer.config" -}}
{{- .Values.config -}}
{{- if include "numa-enforcer.preparesClaims" . -}}
{{- $dra := .Values.dra -}}
{{- $root := include "numa-enforcer.kubeletPath" . -}}
{{- if not (hasSuffix "\n" .Values.config) }}
{{ end }}
# Of the values of the chart:
{{- if and (ne $root "/var/lib/kubelet") (not (include "numa-enforcer.configuresKubelet" .)) }}
[kubelet]
root_dir = {{ $root | quote }}
podresources = {{ printf "%s/pod-resources/kubelet.sock" $root | quote }}
{{ end }}
[dra]
enabled = true
fallback = {{ $dra.fallback | quote }}
accounting = {{ $dra.accounting | quote }}
exclusive_percent = {{ int $dra.exclusivePercent }}
{{- with $dra.dedicatedCpus }}
dedicated_cpus = {{ . | quote }}
{{- end }}
full_cores = {{ $dra.fullCores }}
overlap = {{ $dra.overlap }}
reserve_memory = {{ $dra.reserveMemory | quote }}
share_exclusive = {{ $dra.shareExclusive }}
without_amounts = {{ $dra.withoutAmounts | quote }}
kubevirt_variable = {{ $dra.kubevirtVariable }}
require_nri = {{ $dra.requireNri }}
claim_conditions = {{ $dra.claimConditions }}
device_metadata = {{ $dra.deviceMetadata }}
cdi_dir = {{ $dra.cdiDir | quote }}
{{- range $dra.nodes }}

[[dra.node]]
id = {{ int .id }}
exclusive_cpus = {{ int .exclusiveCpus }}
{{- end }}
{{ end -}}
{{- if include "numa-enforcer.steersInterrupts" . }}
[interrupts]
mode = "enforce"
{{ end -}}
{{- end -}}

{{/* Whether the daemon sets CPUs of interrupts (interrupts.enforce): any text means yes. */}}
{{- define "numa-enforcer.steersInterrupts" -}}
{{- if and .Values.interrupts.enforce (eq .Values.mode "enforce") -}}
yes
{{- end -}}
{{- end -}}

{{/* Whether the user's configuration has a section [kubelet]: any text means yes. */}}
{{- define "numa-enforcer.configuresKubelet" -}}
{{- if regexMatch "(?m)^\\s*(\\[\\s*kubelet\\s*\\]|kubelet\\s*[.=])" .Values.config -}}
yes
{{- end -}}
{{- end -}}

{{/* Capabilities that a mode adds to those of a start, as JSON (docs/privileges.md). */}}
{{- define "numa-enforcer.capabilities" -}}
{{- $start := list "BPF" "PERFMON" "SYS_RESOURCE" -}}
{{- $enforce := ternary (list "SYS_PTRACE" "DAC_OVERRIDE" "SYS_NICE") list (eq .Values.mode "enforce") -}}
{{- concat $start $enforce .Values.extraCapabilities | uniq | toJson -}}
{{- end -}}

{{- define "numa-enforcer.seccompProfile" -}}
{{- if .Values.nonRoot -}}
type: RuntimeDefault
{{- else -}}
type: {{ .Values.seccomp.type }}
{{- if eq .Values.seccomp.type "Localhost" }}
localhostProfile: {{ .Values.seccomp.localhostProfile }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* AppArmor of a container that writes, or of one that does not; takes the root and `writes`. Clusters before 1.30 have
an annotation instead of the field, with one value for each container. */}}
{{- define "numa-enforcer.appArmorType" -}}
{{- default (ternary "Unconfined" "" .writes) .root.Values.appArmor.type -}}
{{- end -}}

{{- define "numa-enforcer.appArmorProfile" -}}
{{- $type := include "numa-enforcer.appArmorType" . -}}
{{- if and $type (semverCompare ">=1.30.0-0" .root.Capabilities.KubeVersion.Version) -}}
appArmorProfile:
  type: {{ $type }}
  {{- if eq $type "Localhost" }}
  localhostProfile: {{ .root.Values.appArmor.localhostProfile }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* The annotation of one container; takes the root, `writes` and the container's name. */}}
{{- define "numa-enforcer.appArmorAnnotation" -}}
{{- $type := include "numa-enforcer.appArmorType" . -}}
{{- if and $type (semverCompare "<1.30.0-0" .root.Capabilities.KubeVersion.Version) -}}
{{- $values := dict "Unconfined" "unconfined" "RuntimeDefault" "runtime/default" -}}
{{- $local := printf "localhost/%s" .root.Values.appArmor.localhostProfile -}}
container.apparmor.security.beta.kubernetes.io/{{ .container }}: {{ default $local (get $values $type) }}
{{- end -}}
{{- end -}}

{{/* How a monitor of the Prometheus operator reads the port; takes the root and the monitor's values. */}}
{{- define "numa-enforcer.endpoint" -}}
- port: metrics
  interval: {{ .monitor.interval }}
  scrapeTimeout: {{ .monitor.scrapeTimeout }}
  # `namespace`, `pod` and `container` are those of workloads, and not of the daemon.
  honorLabels: true
  relabelings:
    - sourceLabels: [__meta_kubernetes_pod_node_name]
      targetLabel: node
    # One name for a machine, also when its pod is made again.
    - sourceLabels: [__meta_kubernetes_pod_node_name]
      targetLabel: instance
  {{- if .root.Values.metrics.token.secretName }}
  authorization:
    type: Bearer
    credentials:
      name: {{ .root.Values.metrics.token.secretName }}
      key: {{ .root.Values.metrics.token.key }}
  {{- end }}
{{- end -}}

{{/* What the schema cannot say of values. */}}
{{- define "numa-enforcer.validate" -}}
{{- if and .Values.nonRoot (ne .Values.mode "observe") -}}
{{- fail (printf "nonRoot: mode %s writes cpusets, which takes root; only mode observe can run without" .Values.mode) -}}
{{- end -}}
{{- if and .Values.nonRoot .Values.extraCapabilities -}}
{{- fail "extraCapabilities: a container that is not root gets none (nonRoot)" -}}
{{- end -}}
{{- if and .Values.cluster.alsoPublish (not .Values.cluster.publish) -}}
{{- fail "cluster.alsoPublish: the objects are made of the state that cluster.publish publishes" -}}
{{- end -}}
{{- if and (or .Values.scheduler.enabled .Values.scheduler.attached.enabled .Values.scheduler.gate.enabled) (not .Values.cluster.publish) -}}
{{- fail "scheduler: nodes are chosen by the states that cluster.publish publishes" -}}
{{- end -}}
{{- if and .Values.scheduler.gate.enabled .Values.scheduler.gate.policy.enabled (semverCompare "<1.36.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "scheduler.gate.policy: MutatingAdmissionPolicy needs Kubernetes 1.36, and this is %s (helm template: --kube-version)" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and .Values.cluster.events (not .Values.cluster.publish) -}}
{{- fail "cluster.events: the account reaches the API server with cluster.publish alone" -}}
{{- end -}}
{{- if and .Values.cluster.featureFile (not .Values.cluster.publish) -}}
{{- fail "cluster.featureFile: the labels are made of the state that cluster.publish publishes" -}}
{{- end -}}
{{- if and .Values.nonRoot .Values.cluster.publish -}}
{{- fail "cluster.publish: a daemon that is not root does not see the kubelet's files (nonRoot)" -}}
{{- end -}}
{{- if regexMatch "(?m)^\\s*(\\[+\\s*dra\\s*[.\\]]|dra\\s*[.=])" .Values.config -}}
{{- fail "config: [dra] is made of the values below dra, which mount what it needs as well" -}}
{{- end -}}
{{- if and .Values.dra.enabled (eq .Values.mode "observe") -}}
{{- fail "dra.enabled: mode observe writes nothing, so no container would get what its claims have; set mode to enforce" -}}
{{- end -}}
{{- if include "numa-enforcer.preparesClaims" . -}}
{{- if semverCompare "<1.34.0-0" .Capabilities.KubeVersion.Version -}}
{{- fail (printf "dra.enabled: resource.k8s.io/v1 needs Kubernetes 1.34, and this is %s (helm template: --kube-version)" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if or (not .Values.nri.enabled) (not (regexMatch "(?m)^\\s*place\\s*=\\s*true" .Values.config)) -}}
{{- fail "dra.enabled: containers get what their claims have over NRI: leave nri.enabled on, and config must have `place = true` below [nri]" -}}
{{- end -}}
{{- if and (eq .Values.dra.accounting "dedicated") (not .Values.dra.dedicatedCpus) -}}
{{- fail "dra.dedicatedCpus: accounting dedicated needs the CPUs that the kubelet keeps from pods (reservedSystemCPUs)" -}}
{{- end -}}
{{- $root := .Values.kubelet.rootDir -}}
{{- if and (ne $root "/var/lib/kubelet") (include "numa-enforcer.configuresKubelet" .) (not (contains (printf "%q" $root) .Values.config)) -}}
{{- fail (printf "config: with dra.enabled, [kubelet] must have root_dir = %q and the podresources below it, as on the node" $root) -}}
{{- end -}}
{{- end -}}
{{- if eq (int .Values.metrics.port) (int .Values.probes.port) -}}
{{- fail "probes.port: must differ from metrics.port" -}}
{{- end -}}
{{- if and .Values.kubectlPlugin.enabled (has (int .Values.kubectlPlugin.port) (list (int .Values.metrics.port) (int .Values.probes.port))) -}}
{{- fail "kubectlPlugin.port: must differ from metrics.port and probes.port" -}}
{{- end -}}
{{- if and .Values.metrics.token.secretName (not (regexMatch "(?m)^\\s*token_file\\s*=" .Values.config)) -}}
{{- fail "metrics.token.secretName: config must have `token_file = \"/etc/numa-enforcer-token/token\"` below [metrics], or the token is not asked for" -}}
{{- end -}}
{{- if and (include "numa-enforcer.installsSeccomp" .) (ne (base .Values.seccomp.localhostProfile) "numa-enforcer.json") -}}
{{- fail "seccomp.localhostProfile: the init container writes numa-enforcer.json; for another name set seccomp.install to false" -}}
{{- end -}}
{{- if and (eq .Values.appArmor.type "Localhost") (not .Values.appArmor.localhostProfile) -}}
{{- fail "appArmor.localhostProfile: type Localhost needs the name of a profile of the nodes" -}}
{{- end -}}
{{- end -}}
