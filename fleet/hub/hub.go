// Package hub prepares an API server to be a hub, and reads the objects on a hub.
package hub

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/config"
	"refract.dev/fleet/member"
)

// Scheme returns a scheme with the kinds of Kubernetes and of Refract.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensionsv1.AddToScheme, corev1alpha1.AddToScheme, refractv1alpha1.AddToScheme, refractv1beta1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Client returns a client that reads from the API server without a cache. It has no rate limit of its own.
func Client(cfg *rest.Config) (client.Client, error) {
	s, err := Scheme()
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	return client.New(cfg, client.Options{Scheme: s})
}

// established is the time limit for a new type to be served.
const established = 30 * time.Second

// InstallCRDs writes Refract's CustomResourceDefinitions to the hub, by server-side apply, and returns when their types
// are served. The definitions of the propagated types are included.
func InstallCRDs(ctx context.Context, cfg *rest.Config) error { return install(ctx, cfg, "crd/*.yaml") }

// InstallInjectionCRD is [InstallCRDs] for the definition that injection into the pods of a cluster needs.
func InstallInjectionCRD(ctx context.Context, cfg *rest.Config) error {
	return install(ctx, cfg, "crd/refract.dev_serviceinjectionpolicies.yaml")
}

// InstallConversionCRD is [InstallCRDs] for the definition that the conversion of custom resources of a cluster needs.
func InstallConversionCRD(ctx context.Context, cfg *rest.Config) error {
	return install(ctx, cfg, "crd/refract.dev_conversionpolicies.yaml")
}

// install writes the CustomResourceDefinitions of the files that a pattern matches.
func install(ctx context.Context, cfg *rest.Config, pattern string) error {
	c, err := Client(cfg)
	if err != nil {
		return err
	}
	files, err := fs.Glob(config.CRDs, pattern)
	if err != nil {
		return err
	}
	var names []string
	for _, file := range files {
		text, err := fs.ReadFile(config.CRDs, file)
		if err != nil {
			return err
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &crd.Object); err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(crd), client.FieldOwner(member.FieldManager), client.ForceOwnership); err != nil {
			return fmt.Errorf("applying CustomResourceDefinition %s: %w", crd.GetName(), err)
		}
		names = append(names, crd.GetName())
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := waitServed(ctx, c, disco, name); err != nil {
			return fmt.Errorf("waiting for CustomResourceDefinition %s to be served: %w", name, err)
		}
	}
	return nil
}

// waitServed returns when a type is established and discovery lists each of its served versions. Discovery may lag
// behind for a moment, and requests in between fail with the error that there is no such type.
func waitServed(ctx context.Context, c client.Client, disco discovery.ServerResourcesInterface, name string) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, established, true, func(ctx context.Context) (bool, error) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
			return false, err
		}
		established := slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		})
		return established && discovered(disco, crd), nil
	})
}

// discovered reports whether discovery lists each served version of a type.
func discovered(disco discovery.ServerResourcesInterface, crd *apiextensionsv1.CustomResourceDefinition) bool {
	for i := range crd.Spec.Versions {
		if !crd.Spec.Versions[i].Served {
			continue
		}
		list, err := disco.ServerResourcesForGroupVersion(crd.Spec.Group + "/" + crd.Spec.Versions[i].Name)
		if err != nil || !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == crd.Spec.Names.Plural }) {
			return false
		}
	}
	return true
}

// Reachable returns an error with the reason if the API server does not answer with the configuration.
func Reachable(ctx context.Context, cfg *rest.Config) error {
	c, err := Client(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := c.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &corev1.Namespace{}); err != nil {
		return fmt.Errorf("reaching the API server at %s: %w", cfg.Host, err)
	}
	return nil
}
