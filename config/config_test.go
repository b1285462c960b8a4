package config

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// documents calls do for each object of a kind in the manifests of a folder and its subfolders, with the path of its
// file.
func documents[T any](t *testing.T, in, kind string, do func(file string, of *T)) {
	t.Helper()
	err := fs.WalkDir(os.DirFS("."), in, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		all := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
		for {
			document, err := all.Read()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			var is metav1.TypeMeta
			if err := yaml.Unmarshal(document, &is); err != nil || is.Kind != kind {
				continue
			}
			o := new(T)
			if err := yaml.UnmarshalStrict(document, o); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			do(file, o)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
