package inventory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// summary has the compared fields of an entry.
type summary struct {
	From       string
	Labels     map[string]string
	Access     []string
	Kubeconfig string
	Unreadable string
}

func summed(e *entry) *summary {
	if e == nil {
		return nil
	}
	s := &summary{From: e.String(), Labels: e.labels, Kubeconfig: string(e.kubeconfig)}
	for i := range e.access {
		a := &e.access[i]
		s.Access = append(s.Access, fmt.Sprintf("%s %s %s", a.Name, a.Cluster.Server, a.Cluster.CertificateAuthorityData))
	}
	if e.unreadable != nil {
		s.Unreadable = e.unreadable.Error()
	}
	return s
}

func TestReadProfile(t *testing.T) {
	many := &strings.Builder{}
	for i := range mostLabels + 5 {
		fmt.Fprintf(many, "{name: p%d, value: v},", i)
	}
	cases := map[string]struct {
		reason string
		status string
		want   summary
	}{
		"Usual": {
			reason: "Properties are labels, and providers keep their order.",
			status: `{properties: [{name: topology.kubernetes.io/region, value: eu}], accessProviders: [
				{name: b, cluster: {server: "https://b:1", certificate-authority-data: Y2E=}}, {name: a, cluster: {server: "https://a:1"}}]}`,
			want: summary{Labels: map[string]string{"topology.kubernetes.io/region": "eu"}, Access: []string{"b https://b:1 ca", "a https://a:1 "}},
		},
		"FormerName": {
			reason: "Before release 0.1 the field was called credentialProviders.",
			status: `{credentialProviders: [{name: a, cluster: {server: "https://a:1"}}]}`,
			want:   summary{Labels: map[string]string{}, Access: []string{"a https://a:1 "}},
		},
		"Empty": {reason: "The status of a ClusterProfile may be empty at first.", status: `{}`, want: summary{Labels: map[string]string{}}},
		"NoLabels": {
			reason: "Invalid labels are ignored, and so are labels with a meaning for Refract.",
			status: `{properties: [{name: "a b", value: c}, {name: a, value: "!"}, {name: kubeadmiral.io/x, value: v}, {name: core.kubeadmiral.io/x, value: v},
				{name: refract.dev/x, value: v}, {name: b, value: ""}]}`,
			want: summary{Labels: map[string]string{"b": ""}},
		},
		"WrongType": {
			reason: "An unreadable profile is reported as unreadable. The cluster does not count as gone.",
			status: `{accessProviders: 7}`,
			want:   summary{Labels: map[string]string{}, Unreadable: "status: json: cannot unmarshal number into Go struct field .status.accessProviders of type []inventory.access"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.want.From = "ClusterProfile/fleet/eu-1"
			got := summed(readProfile(object(t, "{metadata: {name: eu-1, namespace: fleet}, status: "+strings.ReplaceAll(tc.status, "\t", " ")+"}")))
			if diff := cmp.Diff(&tc.want, got); diff != "" {
				t.Errorf("%s\nreadProfile(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
	got := readProfile(object(t, "{metadata: {name: eu-1, namespace: fleet}, status: {properties: ["+many.String()+"]}}"))
	if len(got.labels) != mostLabels {
		t.Errorf("readProfile(...): want at most %d labels, got %d", mostLabels, len(got.labels))
	}
}

func TestReadKubeconfig(t *testing.T) {
	cases := map[string]struct {
		reason string
		secret string
		want   *summary
	}{
		"Usual": {
			reason: "The name of the Secret begins with the name of its cluster.",
			secret: `{metadata: {name: lab-kubeconfig, namespace: capi, labels: {cluster.x-k8s.io/cluster-name: lab}}, data: {value: YQ==}}`,
			want:   &summary{From: "Cluster/capi/lab", Labels: map[string]string{}, Kubeconfig: "a"},
		},
		"OtherSecret": {
			reason: "Other Secrets of a cluster are ignored.",
			secret: `{metadata: {name: lab-ca, namespace: capi, labels: {cluster.x-k8s.io/cluster-name: lab}}, data: {value: YQ==}}`,
		},
		"OtherCluster": {
			reason: "A Secret whose label and name differ is ignored.",
			secret: `{metadata: {name: lab-kubeconfig, namespace: capi, labels: {cluster.x-k8s.io/cluster-name: other}}, data: {value: YQ==}}`,
		},
		"NoData": {
			reason: "An unreadable Secret is reported as unreadable.",
			secret: `{metadata: {name: lab-kubeconfig, namespace: capi, labels: {cluster.x-k8s.io/cluster-name: lab}}, data: {value: "?"}}`,
			want:   &summary{From: "Cluster/capi/lab", Labels: map[string]string{}, Unreadable: "data: illegal base64 data at input byte 0"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, summed(readKubeconfig(object(t, tc.secret)))); diff != "" {
				t.Errorf("%s\nreadKubeconfig(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// FuzzReadProfile checks that every status of a ClusterProfile becomes an entry whose labels are valid for a
// FederatedCluster.
func FuzzReadProfile(f *testing.F) {
	f.Add(`{"properties":[{"name":"a","value":"b"}],"accessProviders":[{"name":"x","cluster":{"server":"https://a"}}]}`)
	f.Add(`{"accessProviders":[{"cluster":{"extensions":[{"name":"client.authentication.k8s.io/exec","extension":{"a":1}}]}}]}`)
	f.Fuzz(func(t *testing.T, status string) {
		u := &unstructured.Unstructured{}
		if yaml.Unmarshal([]byte(`{"metadata":{"name":"a","namespace":"b"},"status":`+status+`}`), &u.Object) != nil {
			t.Skip("no object")
		}
		before := u.DeepCopy()
		e := readProfile(u)
		if diff := cmp.Diff(before, u); diff != "" {
			t.Fatalf("readProfile modifies its input:\n%s", diff)
		}
		if len(e.labels) > mostLabels || len(e.access) > mostProviders {
			t.Errorf("want at most %d labels and %d providers, got %d and %d", mostLabels, mostProviders, len(e.labels), len(e.access))
		}
		for i := range e.access {
			if _, err := write(&e.access[i].Cluster, &credential{token: "t"}); err != nil {
				t.Errorf("write(...): %v", err)
			}
			if _, err := (&Program{ProvideClusterInfo: true}).request(&e.access[i].Cluster); err != nil {
				t.Errorf("request(...): %v", err)
			}
		}
	})
}
