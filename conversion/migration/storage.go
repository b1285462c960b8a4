package migration

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// storage checks whether the API servers store objects in the wanted version.
type storage struct {
	config    *rest.Config
	discovery rest.Interface // Uses the same connection as the patches.
	pace      pace
	crd       *apiextensionsv1.CustomResourceDefinition
	to        string
}

// wait returns after all discovery requests have reported the version as the storage version for the duration settle.
// The requests may reach different API servers if these share an address.
func (s *storage) wait(ctx context.Context, settle time.Duration) error {
	began, since := time.Now(), time.Time{}
	for {
		stores, err := s.agreed(ctx)
		if err != nil {
			return err
		}
		now := time.Now()
		switch {
		case !stores && now.Sub(began) > s.pace.discover:
			return fmt.Errorf("%s: version %s: %w: discovery has reported another storage version for %s", s.crd.Name, s.to, ErrNotTakenUp, s.pace.discover)
		case !stores:
			since = time.Time{}
		case since.IsZero():
			since = now
		}
		if stores && now.Sub(since) >= settle {
			return nil
		}
		if err := pause(ctx, s.pace.look); err != nil {
			return err
		}
	}
}

// agreed sends two discovery requests: one over the connection of the patches, and one over a new connection. It
// reports whether both answers have the version as the storage version.
func (s *storage) agreed(ctx context.Context) (bool, error) {
	here, err := s.by(ctx, s.discovery)
	if err != nil || !here {
		return false, err
	}
	another, err := apart(s.config)
	if err != nil {
		return false, err
	}
	return s.by(ctx, another)
}

// by sends one discovery request. It reports whether the answer has the version as the storage version.
func (s *storage) by(ctx context.Context, client rest.Interface) (bool, error) {
	resources := &metav1.APIResourceList{}
	err := s.pace.persist(ctx, func(ctx context.Context) error {
		body, err := client.Get().AbsPath("/apis", s.crd.Spec.Group, s.to).SetHeader("Accept", "application/json").DoRaw(ctx)
		if err != nil {
			return err
		}
		*resources = metav1.APIResourceList{}
		return json.Unmarshal(body, resources)
	})
	if apierrors.IsNotFound(err) {
		return false, nil // The API server does not serve the version yet.
	}
	if err != nil {
		return false, fmt.Errorf("discovering %s/%s: %w", s.crd.Spec.Group, s.to, err)
	}
	for i := range resources.APIResources {
		if r := &resources.APIResources[i]; r.Name == s.crd.Spec.Names.Plural {
			return r.StorageVersionHash == storageVersionHash(s.crd.Spec.Group, s.to, s.crd.Spec.Names.Kind), nil
		}
	}
	return false, nil
}

// still returns an error if the API server behind the connection of the patches no longer stores objects in the
// version. That server would rewrite objects in another version.
func (s *storage) still(ctx context.Context) error {
	stores, err := s.by(ctx, s.discovery)
	if err == nil && !stores {
		err = fmt.Errorf("%s: version %s: %w: an outdated API server answers now", s.crd.Name, s.to, ErrNotTakenUp)
	}
	return err
}

// storageVersionHash returns the hash that stands for the storage version in discovery.
//
// Source: https://github.com/kubernetes/apiserver/blob/v0.37.1/pkg/endpoints/discovery/storageversionhash.go
func storageVersionHash(group, version, kind string) string {
	sum := sha256.Sum256([]byte(group + "/" + version + "/" + kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

// apart returns a client that opens a new connection for each request, so that a load balancer may choose another API
// server each time.
func apart(cfg *rest.Config) (*rest.RESTClient, error) {
	to, err := cfg.TransportConfig()
	if err != nil {
		return nil, err
	}
	tls, err := transport.TLSConfigFor(to)
	if err != nil {
		return nil, err
	}
	t := &http.Transport{TLSClientConfig: tls, DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment}
	if to.Proxy != nil {
		t.Proxy = to.Proxy
	}
	if to.DialHolder != nil {
		t.DialContext = to.DialHolder.Dial
	}
	wrapped, err := transport.HTTPWrappersForConfig(to, t)
	if err != nil {
		return nil, err
	}
	return rest.UnversionedRESTClientForConfigAndClient(pathwise(cfg), &http.Client{Transport: wrapped})
}

// pathwise returns the configuration of a client for requests with absolute paths.
func pathwise(cfg *rest.Config) *rest.Config {
	out := rest.CopyConfig(cfg)
	out.NegotiatedSerializer = negotiated
	return out
}
