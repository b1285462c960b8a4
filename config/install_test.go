package config

import (
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// TestNetworkPolicies: exactly one NetworkPolicy selects each Deployment. It is installed with the Deployment, and
// admits only requests to the webhook and to the metrics.
func TestNetworkPolicies(t *testing.T) {
	policies := map[string][]*networkingv1.NetworkPolicy{} // By folder.
	documents(t, "install", "NetworkPolicy", func(file string, p *networkingv1.NetworkPolicy) {
		policies[path.Dir(file)] = append(policies[path.Dir(file)], p)
		installed(t, file)
	})
	deployments := 0
	documents(t, ".", "Deployment", func(file string, d *appsv1.Deployment) {
		deployments++
		t.Run(d.Name, func(t *testing.T) {
			installed(t, file)
			var p *networkingv1.NetworkPolicy
			for _, candidate := range policies[path.Dir(file)] {
				selector, err := metav1.LabelSelectorAsSelector(&candidate.Spec.PodSelector)
				if err != nil {
					t.Fatal(err)
				}
				if candidate.Namespace != d.Namespace || !selector.Matches(labels.Set(d.Spec.Template.Labels)) {
					continue
				}
				if p != nil {
					t.Errorf("both %s and %s select it: what one lets in the other cannot keep out", p.Name, candidate.Name)
				}
				p = candidate
			}
			if p == nil {
				t.Fatal("no NetworkPolicy beside it selects its pods: everybody in the cluster may connect")
			}
			want := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
			if diff := cmp.Diff(want, p.Spec.PolicyTypes); diff != "" {
				t.Errorf("what is not said is open: policyTypes: -want, +got:\n%s", diff)
			}
			ports := containerPorts(d)
			in := []networkingv1.NetworkPolicyIngressRule{
				// The guide shows how to narrow the first rule, and refers to it by its position.
				{Ports: port(ports["webhook"])},
				{
					Ports: port(ports["metrics"]),
					From: []networkingv1.NetworkPolicyPeer{{
						NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"refract.dev/metrics": "true"}},
					}},
				},
			}
			if diff := cmp.Diff(in, p.Spec.Ingress, cmp.Comparer(samePort)); diff != "" {
				t.Errorf("ingress: -want, +got:\n%s", diff)
			}
			if len(p.Spec.Egress) == 0 {
				t.Error("egress: without any there is no way to the API server")
			}
		})
	})
	if deployments < 3 {
		t.Errorf("got %d Deployments: they are not where this looks for them", deployments)
	}
}

// TestMemoryLimits: the Go runtime of each Deployment knows its memory limit. Without GOMEMLIMIT, the heap grows to
// twice the size that it needs.
func TestMemoryLimits(t *testing.T) {
	documents(t, ".", "Deployment", func(_ string, d *appsv1.Deployment) {
		for _, c := range d.Spec.Template.Spec.Containers {
			limit := c.Resources.Limits.Memory().Value()
			at := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
			if at < 0 || limit == 0 {
				t.Errorf("%s: want a limit of memory and GOMEMLIMIT, got %d and %v", d.Name, limit, c.Env)
				continue
			}
			text, ok := strings.CutSuffix(c.Env[at].Value, "MiB")
			mib, err := strconv.ParseInt(text, 10, 64)
			if share := float64(mib<<20) / float64(limit); !ok || err != nil || share < 0.85 || share > 0.92 {
				t.Errorf("%s: want GOMEMLIMIT to be about nine tenths of %d, got %q", d.Name, limit, c.Env[at].Value)
			}
		}
	})
}

// installed fails the test unless the kustomization beside a file lists it.
func installed(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(path.Join(path.Dir(file), "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var k struct{ Resources []string }
	if err := yaml.Unmarshal(text, &k); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(k.Resources, path.Base(file)) {
		t.Errorf("%s is not among the resources of the kustomization beside it", file)
	}
}

// containerPorts returns the ports of a Deployment's containers by their names.
func containerPorts(d *appsv1.Deployment) map[string]int32 {
	ports := map[string]int32{}
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, p := range c.Ports {
			ports[p.Name] = p.ContainerPort
		}
	}
	return ports
}

func port(number int32) []networkingv1.NetworkPolicyPort {
	return []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(number))}}
}

// samePort treats a missing protocol as TCP.
func samePort(a, b networkingv1.NetworkPolicyPort) bool {
	protocol := func(p *networkingv1.NetworkPolicyPort) corev1.Protocol {
		if p.Protocol == nil {
			return corev1.ProtocolTCP
		}
		return *p.Protocol
	}
	return protocol(&a) == protocol(&b) && a.EndPort == nil && b.EndPort == nil && a.Port != nil && b.Port != nil && *a.Port == *b.Port
}
