package playground

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestTraitsDiffer(t *testing.T) {
	lines := map[int]string{
		0: "Services in 10.96.0.0/16 and fd00:10:96::/112, node ports 30000-30999, StorageClass standard",
		1: "Services in 10.97.0.0/16, node ports 31000-31999, StorageClass fast, does not serve node.k8s.io/v1",
		2: "Services in 10.98.0.0/16 and fd00:10:98::/112, node ports 32000-32999, StorageClass premium, a webhook adds a label and a sidecar",
		3: "Services in 10.99.0.0/16, node ports 33000-33999, StorageClass zonal, pod security restricted, a ResourceQuota in default",
		4: "Services in 10.100.0.0/16 and fd00:10:100::/112, node ports 34000-34999, StorageClass standard",
	}
	for number, want := range lines {
		if diff := cmp.Diff(want, differing(number).String()); diff != "" {
			t.Errorf("Tests rely on the traits of a cluster, by its number: cluster %d: -want, +got:\n%s", number, diff)
		}
	}
	if diff := cmp.Diff("Services in 10.96.0.0/16", alike.String()); diff != "" {
		t.Errorf("Clusters that are alike have what they had before: -want, +got:\n%s", diff)
	}
	pods := netip.MustParsePrefix(podsCIDR)
	for number := range 300 {
		for _, cidr := range differing(number).Services {
			services, err := netip.ParsePrefix(cidr)
			if err != nil || services != services.Masked() || services.Overlaps(pods) {
				t.Errorf("The addresses of Services must be a network without Pods: cluster %d: got %s, %v", number, cidr, err)
			}
		}
	}
}

func TestTraitsOfAPIServer(t *testing.T) {
	cases := map[string]struct {
		reason string
		traits Traits
		want   []string
	}{
		"Alike":  {"Default values need no flags.", alike, []string{"--service-cluster-ip-range=10.96.0.0/16"}},
		"Ranges": {"Each cluster has its own ranges of addresses and ports.", differing(4), []string{"--service-cluster-ip-range=10.100.0.0/16,fd00:10:100::/112", "--service-node-port-range=34000-34999"}},
		"Without": {"The plugin that reads the missing types would reject all Pods.", Traits{Services: []string{"10.0.0.0/16"}, Without: "node.k8s.io/v1"}, []string{
			"--service-cluster-ip-range=10.0.0.0/16", "--runtime-config=node.k8s.io/v1=false", "--disable-admission-plugins=RuntimeClass",
		}},
		"Restricted": {"The default level of Pod Security is in a file.", Traits{Services: []string{"10.0.0.0/16"}, PodSecurity: "restricted"}, []string{
			"--service-cluster-ip-range=10.0.0.0/16", "--admission-control-config-file=" + admissionFile,
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.traits.apiServerArgs()); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestCertificateNamesTheService(t *testing.T) {
	c := newCluster(t.TempDir(), "member-1", bare)
	c.Traits = differing(1)
	hosts, err := c.hosts()
	if err != nil || !slices.Contains(hosts, "10.97.0.1") {
		t.Errorf("Pods find the API server by the first address of Services: got %v, %v", hosts, err)
	}
}

func TestWebhookMutates(t *testing.T) {
	const label = `{"op":"add","path":"/metadata/labels/playground.refract.dev~1team","value":"blue"}`
	const labels = `{"op":"add","path":"/metadata/labels","value":{"playground.refract.dev/team":"blue"}}`
	const sidecar = `{"op":"add","path":"/spec/containers/-","value":{"image":"playground-sidecar:1","name":"playground-sidecar"}}`
	cases := map[string]struct {
		reason    string
		kind      string
		operation admissionv1.Operation
		object    string
		want      []string
	}{
		"Pod": {
			"A new Pod gets the label and the sidecar.", "Pod", admissionv1.Create,
			`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web"}]}}`, []string{label, sidecar},
		},
		"PodWithoutLabels": {
			"A Pod may have no labels.", "Pod", admissionv1.Create, `{"metadata":{},"spec":{"containers":[{"name":"web"}]}}`, []string{labels, sidecar},
		},
		"PodThatDeclines": {
			"A Pod can opt out of the sidecar.", "Pod", admissionv1.Create,
			`{"metadata":{"labels":{"playground.refract.dev/sidecar":"false"}},"spec":{"containers":[{"name":"web"}]}}`, []string{label},
		},
		"PodThatExists": {
			"The containers of an existing Pod are immutable.", "Pod", admissionv1.Update, `{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"web"}]}}`, []string{label},
		},
		"Service": {
			"Other kinds get only the label, even if they have fields of the same names as Pods.", "Service", admissionv1.Create,
			`{"spec":{"selector":{},"volumes":7},"metadata":{"labels":{"a":"b"}}}`, []string{label},
		},
		"Labelled": {"An existing label stays.", "Deployment", admissionv1.Update, `{"metadata":{"labels":{"playground.refract.dev/team":"red"}}}`, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := mutate(&admissionv1.AdmissionRequest{
				UID: "1", Kind: metav1.GroupVersionKind{Kind: tc.kind}, Operation: tc.operation, Object: runtime.RawExtension{Raw: []byte(tc.object)},
			})
			var patch []json.RawMessage
			if len(got.Patch) > 0 {
				if err := json.Unmarshal(got.Patch, &patch); err != nil {
					t.Fatal(err)
				}
			}
			var lines []string
			for _, p := range patch {
				lines = append(lines, string(p))
			}
			if diff := cmp.Diff(tc.want, lines); diff != "" || !got.Allowed || got.UID != "1" {
				t.Errorf("%s\nallowed %t, UID %s; -want, +got:\n%s", tc.reason, got.Allowed, got.UID, diff)
			}
		})
	}
}

func TestVolumeForClaim(t *testing.T) {
	class := "fast"
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "7"},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
	}
	v := volumeFor(claim)
	got := strings.Join([]string{v.Name, v.Spec.StorageClassName, v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name, string(v.Spec.ClaimRef.UID), string(v.Spec.AccessModes[0])}, " ")
	if diff := cmp.Diff("pvc-7 fast shop data 7 ReadWriteOnce", got); diff != "" {
		t.Errorf("A claim gets a volume of its own: -want, +got:\n%s", diff)
	}
}
