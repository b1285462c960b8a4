package apiserver

import (
	"bufio"
	"bytes"
	"io/fs"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"refract.dev/config"
	"refract.dev/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m, harness.Topology{}, nil) }

// refractTypes returns the types of Refract's CRDs.
func refractTypes(tb testing.TB) []Type {
	tb.Helper()
	files, err := fs.Glob(config.CRDs, "crd/*.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	var all []Type
	for _, file := range files {
		text, err := fs.ReadFile(config.CRDs, file)
		if err != nil {
			tb.Fatal(err)
		}
		document, err := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))).Read()
		if err != nil {
			tb.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(document, crd); err != nil {
			tb.Fatal(err)
		}
		all = append(all, FromCRD(crd)...)
	}
	return all
}
