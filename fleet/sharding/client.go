package sharding

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// Names of the Leases and of their annotations.
const (
	leaderName    = "refract-leader"
	membersName   = "refract-members"
	replicaPrefix = "refract-replica-"

	assignmentAnnotation = "refract.dev/assignment"
	reportAnnotation     = "refract.dev/report"
	podAnnotation        = "refract.dev/pod-uid"
)

// leaseClient reads, watches, writes and removes the Leases of all replicas.
type leaseClient struct {
	leases    coordinationclient.LeaseInterface
	namespace string
	period    time.Duration // The timeout of a request: one without an answer would never end.
}

// named returns a new Lease, which is not written yet.
func (c *leaseClient) named(name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.namespace}}
}

// write creates a Lease without a UID, and updates any other.
func (c *leaseClient) write(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if lease.UID == "" {
		return c.leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	return c.leases.Update(ctx, lease, metav1.UpdateOptions{})
}

// list reads all Leases in one consistent list, which is not outdated.
func (c *leaseClient) list(ctx context.Context) ([]coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, c.period)
	defer cancel()
	list, err := c.leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing Leases: %w", err)
	}
	return list.Items, nil
}

// remove deletes a Lease on these preconditions. It is no error if the Lease does not exist.
func (c *leaseClient) remove(ctx context.Context, name string, on metav1.Preconditions) error {
	ctx, cancel := context.WithTimeout(ctx, c.period)
	defer cancel()
	err := c.leases.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &on})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing Lease %s: %w", name, err)
	}
	return nil
}

// watch calls wake when a Lease appears, disappears, or has a new assignment or report.
func (c *leaseClient) watch(ctx context.Context, wake func()) {
	for ctx.Err() == nil {
		c.follow(ctx, wake)
		select { // The regular steps work without a watch, but more slowly.
		case <-ctx.Done():
		case <-time.After(c.period / 4):
		}
	}
}

// follow watches for a limited time, as a connection may be dead without a sign.
func (c *leaseClient) follow(ctx context.Context, wake func()) {
	ctx, cancel := context.WithTimeout(ctx, 20*c.period)
	defer cancel()
	w, err := c.leases.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	defer w.Stop()
	said := map[string]string{}
	for {
		select {
		case <-ctx.Done():
			return
		case e, open := <-w.ResultChan():
			if !open {
				return
			}
			lease, ok := e.Object.(*coordinationv1.Lease)
			if !ok || lease.Name != membersName && !strings.HasPrefix(lease.Name, replicaPrefix) {
				continue
			}
			text := lease.Annotations[assignmentAnnotation] + lease.Annotations[reportAnnotation]
			was, known := said[lease.Name]
			said[lease.Name] = text
			if e.Type == watch.Deleted {
				delete(said, lease.Name)
			}
			if e.Type == watch.Deleted || !known || was != text || lease.Name == membersName {
				wake()
			}
		}
	}
}
