package hub

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"refract.dev/config"
	"refract.dev/internal/member"
)

// ErrNoAdmissionPolicies is returned for a hub whose API server does not know
// ValidatingAdmissionPolicies, or not all that Refract's make use of.
var ErrNoAdmissionPolicies = errors.New("the hub cannot say who may have what propagated: it must be Kubernetes 1.35 or later")

// InstallAdmission writes Refract's ValidatingAdmissionPolicies and their
// bindings to the hub, by server-side apply. The API server heeds them a moment
// later.
func InstallAdmission(ctx context.Context, cfg *rest.Config) error {
	c, err := Client(cfg)
	if err != nil {
		return err
	}
	objects, err := admission()
	if err != nil {
		return err
	}
	for _, o := range objects {
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(member.FieldManager), client.ForceOwnership)
		switch {
		case meta.IsNoMatchError(err), apierrors.IsInvalid(err):
			return fmt.Errorf("%w: %w", ErrNoAdmissionPolicies, err)
		case err != nil:
			return fmt.Errorf("applying %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// admission returns the objects of [config.Admission], policies before their
// bindings.
func admission() ([]*unstructured.Unstructured, error) {
	files, err := fs.Glob(config.Admission, "admission/*.yaml")
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, file := range files {
		text, err := fs.ReadFile(config.Admission, file)
		if err != nil {
			return nil, err
		}
		documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			o := &unstructured.Unstructured{}
			if err := errors.Join(err, yaml.Unmarshal(document, &o.Object)); err != nil {
				return nil, fmt.Errorf("reading %s: %w", file, err)
			}
			objects = append(objects, o)
		}
	}
	return objects, nil
}
