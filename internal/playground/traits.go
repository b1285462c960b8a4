package playground

import (
	"fmt"
	"net/netip"
	"strings"
)

// Traits are the properties in which the clusters of a playground differ, as real clusters do.
type Traits struct {
	// Services has the CIDR of Services, or one CIDR for each IP family.
	Services []string `json:"services"`
	// NodePorts is the range of node ports, "30000-30999"; empty for the default of Kubernetes.
	NodePorts string `json:"nodePorts,omitempty"`
	// StorageClass is the name of the only StorageClass, which is the default one; empty if the cluster has none.
	StorageClass string `json:"storageClass,omitempty"`
	// WaitForConsumer is true if a claim is bound only when a Pod that uses it is scheduled.
	WaitForConsumer bool `json:"waitForConsumer,omitempty"`
	// Without is a version of an API group that the API server does not serve.
	Without string `json:"without,omitempty"`
	// Webhook is true if a mutating webhook labels some objects and adds a sidecar to Pods.
	Webhook bool `json:"webhook,omitempty"`
	// PodSecurity is the Pod Security level of namespaces without a label; empty for the default of Kubernetes.
	PodSecurity string `json:"podSecurity,omitempty"`
	// Quota is true if the namespace "default" has a ResourceQuota, which works only with controllers.
	Quota bool `json:"quota,omitempty"`
}

// alike are the traits of all clusters with [Options.Alike].
var alike = Traits{Services: []string{"10.96.0.0/16"}}

// differing returns the traits of a cluster. The hub has the number 0, and member-1 the number 1. The traits depend
// only on the number, so tests can rely on them.
func differing(number int) Traits {
	second := 96 + number%100
	first := 30_000 + 1000*(number%20)
	t := Traits{
		Services:        []string{fmt.Sprintf("10.%d.0.0/16", second)},
		NodePorts:       fmt.Sprintf("%d-%d", first, first+999),
		StorageClass:    []string{"standard", "fast", "premium", "zonal"}[number%4],
		WaitForConsumer: number%2 == 0,
	}
	if number%2 == 0 {
		t.Services = append(t.Services, fmt.Sprintf("fd00:10:%d::/112", second))
	}
	switch number {
	case 1:
		t.Without = "node.k8s.io/v1"
	case 2:
		t.Webhook = true
	case 3:
		t.PodSecurity, t.Quota = "restricted", true
	}
	return t
}

// String returns one line for the user.
func (t Traits) String() string {
	out := []string{"Services in " + strings.Join(t.Services, " and ")}
	if t.NodePorts != "" {
		out = append(out, "node ports "+t.NodePorts)
	}
	if t.StorageClass != "" {
		out = append(out, "StorageClass "+t.StorageClass)
	}
	if t.Without != "" {
		out = append(out, "does not serve "+t.Without)
	}
	if t.Webhook {
		out = append(out, "a webhook adds a label and a sidecar")
	}
	if t.PodSecurity != "" {
		out = append(out, "pod security "+t.PodSecurity)
	}
	if t.Quota {
		out = append(out, "a ResourceQuota in default")
	}
	return strings.Join(out, ", ")
}

// apiServerArgs returns the flags of the API server for these traits.
func (t Traits) apiServerArgs() []string {
	args := []string{"--service-cluster-ip-range=" + strings.Join(t.Services, ",")}
	if t.NodePorts != "" {
		args = append(args, "--service-node-port-range="+t.NodePorts)
	}
	if t.Without != "" {
		args = append(args,
			"--runtime-config="+t.Without+"=false",
			// This plugin reads RuntimeClasses. If it cannot read them, it rejects Pods.
			"--disable-admission-plugins=RuntimeClass")
	}
	if t.PodSecurity != "" {
		args = append(args, "--admission-control-config-file="+admissionFile)
	}
	return args
}

// address returns the address of the Service "kubernetes".
func (t Traits) address() (string, error) {
	services, err := netip.ParsePrefix(t.Services[0])
	if err != nil {
		return "", fmt.Errorf("reading the CIDR of Services: %w", err)
	}
	return services.Addr().Next().String(), nil
}

// admissionConfiguration returns the configuration of admission plugins with this default Pod Security level.
func admissionConfiguration(level string) []byte {
	return fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: %[1]s, enforce-version: latest, audit: %[1]s, audit-version: latest, warn: %[1]s, warn-version: latest}
    exemptions: {namespaces: [kube-system, kube-public, kube-node-lease]}
`, level)
}
