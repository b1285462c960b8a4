package member

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// identity says which cluster answers at the address of a member, whatever its name, and
// whether that is still the one of which everything else is known.
type identity struct {
	api    *connection
	newest func() uint64 // The newest version that is known of any copy.

	mu   sync.Mutex
	last clusterIdentity // When it was last asked.
}

// uid is that of the cluster; "" if it is not known.
func (i *identity) uid() types.UID { return i.known().uid }

// clusterIdentity is which cluster answers, and how far its data has got.
type clusterIdentity struct {
	uid types.UID // That of its namespace kube-system.
	// revision grows with each write; 0 if it is not known. It is of the storage that
	// namespaces are in, which need not be that of all types.
	revision uint64
}

// read reads who answers at the address of the member. A list that asks for no
// resourceVersion says what is stored, and not what an API server remembers.
func (i *identity) read(ctx context.Context) (clusterIdentity, error) {
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
			return clusterIdentity{ns.UID, number(list.ResourceVersion)}, nil
		}
	}
	return clusterIdentity{}, apierrors.NewNotFound(namespaces.GroupResource(), metav1.NamespaceSystem)
}

// replaced returns why what is known of the member does not hold any more; "" if it does.
// Watches do not notice: they go on from a version that the cluster has not reached yet,
// and hear nothing until it has. Away says that it may have happened since the last time
// that somebody asked.
func (i *identity) replaced(ctx context.Context, away bool) (why string, err error) {
	was := i.known()
	if was.uid == "" {
		return "", nil
	}
	newest := was.revision
	if away {
		newest = max(newest, i.newest())
	}
	now, err := i.read(ctx) // Afterwards: watches go on.
	if err != nil {
		return "", err
	}
	switch {
	case was.uid != now.uid:
		return "another cluster, or this one without its data, answers in its place; it is taken up anew", nil
	case now.revision != 0 && now.revision < newest:
		return "its data is older than it was, as from a backup; it is taken up anew", nil
	}
	i.recognize(now)
	return "", nil
}

// identify reads which cluster this is, whatever its name.
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
