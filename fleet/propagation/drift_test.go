package propagation

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRemedyOf(t *testing.T) {
	const leave = "Stop the other writer, or leave the fields to the members: annotate the object on the hub with refract.dev/left-to-members="
	const stop = "Stop one of the two writers"
	cases := map[string]struct {
		reason   string
		resource string
		lost     []string
		want     string
	}{
		"Field":    {"The message contains an annotation that can be copied.", "deployments", []string{"/spec/replicas"}, leave + `'["/spec/replicas"]'`},
		"Fields":   {"The annotation contains all fields.", "deployments", []string{"/metadata/labels/a", "/spec/containers/*/image"}, leave + `'["/metadata/labels/a","/spec/containers/*/image"]'`},
		"Unknown":  {"After a restart the fields are unknown; the copy may also have been deleted.", "deployments", nil, stop},
		"Metadata": {"Of the metadata, only labels and annotations can be left to members.", "deployments", []string{"/metadata/finalizers", "/status/x"}, stop},
		"Secret":   {"The values of a Secret are not left to members.", "secrets", []string{"/data/password", "/stringData/password"}, stop},
		"OfSecret": {"Its labels may be left.", "secrets", []string{"/data/password", "/metadata/labels/a"}, leave + `'["/metadata/labels/a"]'`},
		"NoSecret": {"The data of a ConfigMap can be left.", "configmaps", []string{"/data/color"}, leave + `'["/data/color"]'`},
		"Many":     {"The length of a message is bounded.", "deployments", []string{"/a", "/b", "/c", "/d", "/e", "/f", "/g", "/h", "/i"}, leave + `'["/a","/b","/c","/d","/e","/f","/g","/h"]'`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := remedyOf(Key{GroupResource: schema.GroupResource{Resource: tc.resource}}, tc.lost)
			if got != tc.want {
				t.Errorf("%s\nremedyOf(): want %s, got %s", tc.reason, tc.want, got)
			}
		})
	}
}
