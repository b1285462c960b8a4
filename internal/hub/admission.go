package hub

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

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

// ErrNoAdmissionPolicies is returned for a cluster whose API server does not know
// ValidatingAdmissionPolicies, or not all that Refract's make use of.
var ErrNoAdmissionPolicies = errors.New("the API server cannot say who may hand out what: it must be Kubernetes 1.35 or later")

// InstallAdmission writes Refract's ValidatingAdmissionPolicies and their
// bindings to the hub, by server-side apply. The API server heeds them a moment
// later.
//
// The trusted are users who may have Services hand out what they may not read
// themselves, each by the name that the API server knows him by:
// system:serviceaccount:NAMESPACE:NAME for a service account.
func InstallAdmission(ctx context.Context, cfg *rest.Config, trusted ...string) error {
	return installAdmission(ctx, cfg, "admission/*.yaml", trusted)
}

// InstallServiceAdmission does the same as [InstallAdmission] for a cluster that is
// no hub: only what decides on the annotations of Services, from which pods of this
// cluster get what their policies say.
func InstallServiceAdmission(ctx context.Context, cfg *rest.Config, trusted ...string) error {
	return installAdmission(ctx, cfg, serviceAdmission, trusted)
}

// serviceAdmission is the file that also clusters have which are no hub.
const serviceAdmission = "admission/services.yaml"

func installAdmission(ctx context.Context, cfg *rest.Config, pattern string, trusted []string) error {
	c, err := Client(cfg)
	if err != nil {
		return err
	}
	objects, err := admission(pattern, trusted)
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

// admission returns the objects in the files of [config.Admission] that fit the
// pattern, policies before their bindings.
func admission(pattern string, trusted []string) ([]*unstructured.Unstructured, error) {
	files, err := fs.Glob(config.Admission, pattern)
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
			if err := trust(o, trusted); err != nil {
				return nil, fmt.Errorf("completing %s: %w", file, err)
			}
			objects = append(objects, o)
		}
	}
	return objects, nil
}

// trust writes the names of users into the variable "trusted" of a policy, if it
// has one.
func trust(policy *unstructured.Unstructured, users []string) error {
	variables, found, err := unstructured.NestedSlice(policy.Object, "spec", "variables")
	if err != nil || !found {
		return err
	}
	literals := make([]string, len(users))
	for i, user := range users {
		literals[i] = strconv.Quote(user) // CEL has all the escapes of Go.
	}
	for _, v := range variables {
		if variable, ok := v.(map[string]any); ok && variable["name"] == "trusted" {
			variable["expression"] = "[" + strings.Join(literals, ", ") + "]"
		}
	}
	return unstructured.SetNestedSlice(policy.Object, variables, "spec", "variables")
}
