package playground

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func TestWriteKubeconfig(t *testing.T) {
	dir := t.TempDir()
	user := pair{cert: []byte("certificate"), key: []byte("key")}
	var files []string
	for _, c := range []Cluster{
		{Name: "hub", Endpoint: "https://127.0.0.1:1"},
		{Name: "member-1", Endpoint: "https://127.0.0.1:2"},
	} {
		file := filepath.Join(dir, c.Name+".yaml")
		if err := writeKubeconfig(file, c, []byte("authority"), user); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)

		got, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			t.Fatal(err)
		}
		want := rest.TLSClientConfig{CAData: []byte("authority"), CertData: user.cert, KeyData: user.key}
		if diff := cmp.Diff(want, got.TLSClientConfig); diff != "" {
			t.Errorf("The file must be enough to get in: -want, +got:\n%s", diff)
		}
		if diff := cmp.Diff(c.Endpoint, got.Host); diff != "" {
			t.Errorf("-want, +got:\n%s", diff)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff("-rw-------", info.Mode().String()); diff != "" {
			t.Errorf("It contains a key: -want, +got:\n%s", diff)
		}
	}

	merged, err := (&clientcmd.ClientConfigLoadingRules{Precedence: files}).Load()
	if err != nil {
		t.Fatal(err)
	}
	if len(merged.Contexts) != 2 || len(merged.Clusters) != 2 || len(merged.AuthInfos) != 2 {
		t.Errorf("Merged files must keep all clusters and users apart: got %v", merged)
	}
	if diff := cmp.Diff("hub", merged.CurrentContext); diff != "" {
		t.Errorf("A context is named after its cluster: -want, +got:\n%s", diff)
	}
}
