package migration

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// Annotation is where a CustomResourceDefinition says how far a migration is that
// goes on, or was interrupted: JSON. It is removed when the migration has ended.
const Annotation = "refract.dev/migration"

// fieldManager is who writes to the definition.
const fieldManager = "refract-migrate"

// mark is the content of the annotation.
type mark struct {
	// To is the version in which objects are to be stored.
	To string `json:"to"`
	// Generation is that of the definition when the migration began.
	Generation int64 `json:"generation"`
	// After is the last object in the order of the API server, NAMESPACE/NAME or NAME, up
	// to which all were looked at.
	After string `json:"after,omitempty"`
}

// read reads the definition.
func (m *migration) read(ctx context.Context) (*apiextensionsv1.CustomResourceDefinition, error) {
	var u *unstructured.Unstructured
	err := m.persist(ctx, func(ctx context.Context) (err error) {
		u, err = m.definitions.Get(ctx, m.Name, metav1.GetOptions{})
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%s: %w", m.Name, ErrNoDefinition)
	case err != nil:
		return nil, m.about("reading", err)
	}
	return m.decode(u)
}

func (m *migration) decode(u *unstructured.Unstructured) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, crd); err != nil {
		return nil, m.about("reading", err)
	}
	return crd, nil
}

// judge returns why the objects of the definition cannot be migrated to the version.
func judge(crd *apiextensionsv1.CustomResourceDefinition, to string) error {
	if crd.DeletionTimestamp != nil {
		return fmt.Errorf("%s: %w: it is being deleted", crd.Name, ErrNotReady)
	}
	if !slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	}) {
		return fmt.Errorf("%s: %w: it is not Established", crd.Name, ErrNotReady)
	}
	var names []string
	storage := ""
	var target *apiextensionsv1.CustomResourceDefinitionVersion
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		names = append(names, v.Name)
		if v.Storage {
			storage = v.Name
		}
		if v.Name == to {
			target = v
		}
	}
	switch {
	case target == nil:
		return fmt.Errorf("%s: %s: %w: it has %s", crd.Name, to, ErrNoVersion, strings.Join(names, ", "))
	case !target.Served:
		return fmt.Errorf("%s: version %s: %w", crd.Name, to, ErrNotServed)
	case !target.Storage:
		return fmt.Errorf("%s: version %s: %w: that is %s", crd.Name, to, ErrNotStorage, storage)
	}
	return nil
}

// takenUp waits until each look has found for a time that the API server stores in the
// version. Where there are several API servers behind one address, each look may ask
// another.
func (m *migration) takenUp(ctx context.Context, settle time.Duration) error {
	began, since := time.Now(), time.Time{}
	for {
		stores, err := m.stores(ctx)
		if err != nil {
			return err
		}
		now := time.Now()
		switch {
		case !stores && now.Sub(began) > m.pace.takeUp:
			return fmt.Errorf("%s: version %s: %w: discovery says otherwise for %s", m.Name, m.To, ErrNotTakenUp, m.pace.takeUp)
		case !stores:
			since = time.Time{}
		case since.IsZero():
			since = now
		}
		if stores && now.Sub(since) >= settle {
			return nil
		}
		if err := pause(ctx, m.pace.look); err != nil {
			return err
		}
	}
}

// stores asks two API servers whether they store in the version: the one that is asked
// for everything, and one over a connection of its own.
func (m *migration) stores(ctx context.Context) (bool, error) {
	here, err := m.storesBy(ctx, m.discovery)
	if err != nil || !here {
		return false, err
	}
	another, err := apart(m.Config)
	if err != nil {
		return false, err
	}
	return m.storesBy(ctx, another)
}

// storesBy asks one of them.
func (m *migration) storesBy(ctx context.Context, client rest.Interface) (bool, error) {
	spec := &m.crd.Spec
	resources := &metav1.APIResourceList{}
	err := m.persist(ctx, func(ctx context.Context) error {
		body, err := client.Get().AbsPath("/apis", spec.Group, m.To).SetHeader("Accept", "application/json").DoRaw(ctx)
		if err != nil {
			return err
		}
		*resources = metav1.APIResourceList{}
		return json.Unmarshal(body, resources)
	})
	if apierrors.IsNotFound(err) {
		return false, nil // It does not even serve it yet.
	}
	if err != nil {
		return false, fmt.Errorf("discovering %s/%s: %w", spec.Group, m.To, err)
	}
	for i := range resources.APIResources {
		if r := &resources.APIResources[i]; r.Name == spec.Names.Plural {
			return r.StorageVersionHash == storageVersionHash(spec.Group, m.To, spec.Names.Kind), nil
		}
	}
	return false, nil
}

// stillStores returns an error if the API server that is asked for everything does not
// store in the version any more: it would rewrite objects in another.
func (m *migration) stillStores(ctx context.Context) error {
	stores, err := m.storesBy(ctx, m.discovery)
	if err == nil && !stores {
		err = fmt.Errorf("%s: version %s: %w: one that is behind answers now", m.Name, m.To, ErrNotTakenUp)
	}
	return err
}

// storageVersionHash is how discovery says which version it is that is stored.
//
// Source: https://github.com/kubernetes/apiserver/blob/v0.37.1/pkg/endpoints/discovery/storageversionhash.go
func storageVersionHash(group, version, kind string) string {
	sum := sha256.Sum256([]byte(group + "/" + version + "/" + kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

// apart returns a client that keeps no connection, so that a balancer before several
// API servers can have each request answered by another.
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

// pathwise returns the config of a client that is told whole paths.
func pathwise(cfg *rest.Config) *rest.Config {
	out := rest.CopyConfig(cfg)
	out.NegotiatedSerializer = negotiated
	return out
}

// interrupted returns how far a run came that was interrupted; nil if there was none
// that can be continued.
func (m *migration) interrupted() *mark {
	text, ok := m.crd.Annotations[Annotation]
	if !ok {
		return nil
	}
	at := &mark{}
	if json.Unmarshal([]byte(text), at) != nil || at.To != m.To || at.Generation != m.crd.Generation {
		return nil
	}
	return at
}

// save writes down how far the migration is, and returns an error if the definition is
// not what it was.
func (m *migration) save(ctx context.Context, at *mark) error {
	text, err := json.Marshal(at)
	if err != nil {
		return err
	}
	return m.annotate(ctx, string(text))
}

// annotate sets the annotation; nil removes it.
func (m *migration) annotate(ctx context.Context, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": m.crd.UID, "annotations": map[string]any{Annotation: value},
	}})
	if err != nil {
		return err
	}
	u, err := m.patchDefinition(ctx, patch)
	if err != nil {
		return m.about("annotating", err)
	}
	return m.unchanged(u)
}

// patchDefinition sends a merge patch.
func (m *migration) patchDefinition(ctx context.Context, patch []byte, subresources ...string) (*unstructured.Unstructured, error) {
	var u *unstructured.Unstructured
	err := m.persist(ctx, func(ctx context.Context) (err error) {
		u, err = m.definitions.Patch(ctx, m.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}, subresources...)
		return err
	})
	return u, err
}

// unchanged returns an error if the definition is not what it was at the beginning.
func (m *migration) unchanged(u *unstructured.Unstructured) error {
	switch {
	case u.GetUID() != m.crd.UID:
		return fmt.Errorf("%s: %w: it was deleted, and created anew", m.Name, ErrChanged)
	case u.GetDeletionTimestamp() != nil:
		return fmt.Errorf("%s: %w: it is being deleted", m.Name, ErrChanged)
	case u.GetGeneration() != m.crd.Generation:
		return fmt.Errorf("%s: %w: generation %d became %d", m.Name, ErrChanged, m.crd.Generation, u.GetGeneration())
	}
	return nil
}

// finish takes the other versions out of status.storedVersions, and removes the
// annotation.
func (m *migration) finish(ctx context.Context) error {
	if err := m.takenUp(ctx, 0); err != nil { // An API server may have come back that knows less.
		return err
	}
	for try := 1; ; try++ {
		u, err := m.definitions.Get(ctx, m.Name, metav1.GetOptions{})
		if err != nil {
			return m.about("reading", err)
		}
		if err := m.unchanged(u); err != nil {
			return err
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion()},
			"status":   map[string]any{"storedVersions": []string{m.To}},
		})
		if err != nil {
			return err
		}
		u, err = m.patchDefinition(ctx, patch, "status")
		if apierrors.IsConflict(err) && try < m.pace.tries {
			continue // Somebody has changed something else in it.
		}
		if err != nil {
			return m.about("updating the status of", err)
		}
		crd, err := m.decode(u)
		if err != nil {
			return err
		}
		m.result.StoredVersionsAfter = crd.Status.StoredVersions
		return m.annotate(ctx, nil)
	}
}
