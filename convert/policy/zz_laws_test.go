package policy

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"sigs.k8s.io/yaml"

	"refract.dev/api/refract/v1alpha1"
	"refract.dev/convert"
	"refract.dev/convert/verify"
)

func TestZZLaws(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txtar")
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			archive, _ := txtar.ParseFile(file)
			in := texts(archive.Files)
			spec := &v1alpha1.ConversionPolicySpec{}
			_ = yaml.UnmarshalStrict([]byte(in["policy.yaml"]), spec)
			def := definition(t, in)
			p, _ := Compile(spec, def)
			if p == nil {
				t.Skip()
			}
			e, err := convert.New(p.Resource())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
			defer cancel()
			r, err := verify.Run(ctx, verify.Engine(e), verify.Options{Definition: def, Hub: p.Hub(), Versions: p.Versions(), Knowledge: p, Objects: 200, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(r.Objects, r.Refused, r.Checks, r.Complete)
			for _, v := range r.Violations() {
				t.Errorf("%s %s->%s %s rule %s: %s\n  object %s\n got %s want %s", v.Law, v.From, v.To, v.Path, v.Rule, v.Message, jsonText(v.Object), jsonText(v.Got), jsonText(v.Want))
			}
		})
	}
}
