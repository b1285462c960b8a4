package member

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// identity identifies the cluster at the address of a member, independent of its name. It also reports whether the
// known data about the member comes from the same cluster.
type identity struct {
	api    *connection
	newest func() uint64 // Returns the newest known version of any copy.

	mu    sync.Mutex
	last  clusterIdentity // As of the last request.
	rival types.UID       // See [identity.doubt]; "" if there was none.
}

// uid returns the UID of the cluster; "" if it is not known.
func (i *identity) uid() types.UID { return i.known().uid }

// clusterIdentity is the identity of a cluster, and the version of its data.
type clusterIdentity struct {
	uid types.UID // Of the namespace kube-system.
	// revision is the revision of the storage of namespaces, which grows with each write; 0 if it is not known. Other
	// types may have a separate storage.
	revision uint64
	// rival is identity.rival before the request.
	rival types.UID
}

// read identifies the cluster at the address of the member. A list without a resourceVersion returns the stored state,
// and not the cache of an API server.
func (i *identity) read(ctx context.Context) (clusterIdentity, error) {
	i.mu.Lock()
	rival := i.rival
	i.mu.Unlock()
	list, err := i.api.list(ctx, namespaces, metav1.ListOptions{FieldSelector: "metadata.name=" + metav1.NamespaceSystem})
	if err != nil {
		return clusterIdentity{}, err
	}
	for at := range list.Items {
		switch ns := &list.Items[at]; {
		case ns.Name != metav1.NamespaceSystem:
		case len(ns.UID) > mostMark:
			return clusterIdentity{}, i.api.limits.excess.over("bytes of a UID", mostMark)
		default:
			return clusterIdentity{ns.UID, number(list.ResourceVersion), rival}, nil
		}
	}
	return clusterIdentity{}, apierrors.NewNotFound(namespaces.GroupResource(), metav1.NamespaceSystem)
}

// replaced returns the reason why the known data about the member is no longer valid; "" if it is valid. Watches do not
// notice that a member was replaced: they continue from a version that the new cluster has not reached yet, and receive
// no events until then. The argument away says that the member was unreachable since the last request, or that a watch
// was interrupted. Then the data of the cluster must not be older than any known copy.
func (i *identity) replaced(ctx context.Context, away bool) (why string, err error) {
	was := i.known()
	if was.uid == "" {
		return "", nil
	}
	newest := was.revision
	if away {
		newest = max(newest, i.newest())
	}
	now, err := i.read(ctx) // This request comes after i.newest, because watches continue and may see newer versions meanwhile.
	if err != nil {
		return "", err
	}
	switch {
	case was.uid != now.uid:
		return "another cluster, or this one without its data, answers at this address; Refract reconnects", nil
	case now.revision != 0 && now.revision < newest:
		return "its data is older than before, as from a backup; Refract reconnects", nil
	}
	i.recognize(now)
	return "", nil
}

// doubt notes that another name at the address was identified as the cluster rival, and reports whether the member must
// be identified again.
func (i *identity) doubt(rival types.UID) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.last.uid == rival || i.rival == rival {
		return false
	}
	i.rival = rival
	return true
}

// doubted reports whether the member must be identified again because of [identity.doubt].
func (i *identity) doubted() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.rival != i.last.rival
}

// identify reads the identity of the cluster from the member, and records it.
func (i *identity) identify(ctx context.Context) error {
	now, err := i.read(ctx)
	if err != nil {
		return fmt.Errorf("identifying the cluster: %w", err)
	}
	i.recognize(now)
	return nil
}

func (i *identity) recognize(now clusterIdentity) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.last = now
}

func (i *identity) known() clusterIdentity {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.last
}
