package member

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// The rate limit of requests for objects of a member, per second, and the burst. API servers on few cores accept some
// hundred writes per second. The limit protects them from a bug in Refract, and does not slow down regular work.
const (
	requestsPerSecond = 500
	requestBurst      = 1000
)

// requestTimeout bounds every request to a member except watches. It is longer than the default timeout of a webhook,
// 10 s, so that Refract can distinguish a hanging webhook from a hanging member.
const requestTimeout = 15 * time.Second

// errLeft is returned for requests after the connection was closed: the member has left, or has another connection.
var errLeft = errors.New("the cluster has left, or its connection has changed")

// connection makes the requests to the API server of one member. Each request is bounded in time and in the size of its
// answer, and records missing rights. Each write also reports to the breaker whether the member accepts writes. No
// request is made after the connection is closed.
type connection struct {
	metadata  *metadataClient
	whole     *wholeClient
	discovery *discovery.DiscoveryClient
	rest      rest.Interface // Without a rate limit, so that probes do not wait for writes.
	closeIdle func()
	token     *currentToken // Nil if Refract adds no token to the requests.

	lifetime lifetime
	limits   limits
	rights   rights
	breaker  breaker
	meter    meter
	broke    atomic.Bool // Whether a watch was interrupted since the last check of the identity.
}

// lifetime tracks the requests and watches of a connection, so that close can end them.
type lifetime struct {
	ctx     context.Context //nolint:containedctx // Ends all watches, which begin at different times.
	stop    context.CancelFunc
	watches sync.WaitGroup

	mu       sync.Mutex     // Held while a request begins, so that close waits for every request that has begun.
	requests sync.WaitGroup // Requests under way.
}

// begin reports whether a request may begin. If so, the caller must call requests.Done at its end.
func (l *lifetime) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return false
	}
	l.requests.Add(1)
	return true
}

func newConnection(name string, cfg *rest.Config) (*connection, error) {
	bounds, t := newLimits(name), newCurrentToken(cfg.BearerToken)
	web, closeIdle, err := httpClientWith(cfg, t, bounds)
	if err != nil {
		return nil, err
	}
	c, err := connectionBy(web, name, cfg, bounds, closeIdle)
	if err != nil {
		return nil, err
	}
	c.token = t
	return c, nil
}

// connectionBy returns a connection that uses the given HTTP client.
func connectionBy(web *http.Client, name string, cfg *rest.Config, bounds limits, closeIdle func()) (*connection, error) {
	unlimited := rest.CopyConfig(cfg)
	unlimited.QPS = -1
	plain, err := restClient(unlimited, web, asked{})
	if err != nil {
		return nil, err
	}
	limited := rest.CopyConfig(cfg)
	limited.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(requestsPerSecond, requestBurst)
	meta, err := newMetadataClient(limited, web)
	if err != nil {
		return nil, err
	}
	whole, err := newWholeClient(limited, web)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &connection{
		metadata:  meta,
		whole:     whole,
		discovery: discovery.NewDiscoveryClient(plain),
		rest:      plain,
		closeIdle: closeIdle,
		limits:    bounds,
		rights:    rights{now: time.Now},
		breaker:   breaker{member: name, now: time.Now, opened: meter(name).opened},
		meter:     meter(name),
		lifetime:  lifetime{ctx: ctx, stop: stop},
	}
	c.breaker.ask = func() {
		go func() { c.breaker.answered(c.request(c.lifetime.ctx, c.examine)) }() // connection.close waits for this request.
	}
	return c, nil
}

// close refuses new requests, ends the watches, and waits for the requests under way. Then it calls the function begun,
// and waits for the watches.
func (c *connection) close(begun func()) {
	l := &c.lifetime
	l.mu.Lock()
	l.stop()
	l.mu.Unlock()
	l.requests.Wait() // After this, no request is under way and none begins.
	begun()
	l.watches.Wait()
	c.closeIdle()
}

func (c *connection) closed() bool { return c.lifetime.ctx.Err() != nil }

// probeTimeout is the timeout of a request that checks whether an API server works.
const probeTimeout = 5 * time.Second

// probe asks the API server whether it is ready to serve. If the API server answers that it is not ready, the error is
// an [apierrors.APIStatus].
func (c *connection) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return c.rest.Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error() // The next probe is the retry.
}

// examine probes the API server like [connection.probe], and also checks whether it accepts writes. For this it creates
// the namespace kube-system as a dry run. A healthy API server answers that the namespace exists. The role of each
// account allows the dry run, and no tenant can influence the answer.
func (c *connection) examine(ctx context.Context) error {
	if err := c.probe(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := c.rest.Post().AbsPath("/api/v1/namespaces").Param("fieldManager", FieldManager).Param("dryRun", metav1.DryRunAll).
		SetHeader("Content-Type", "application/json").MaxRetries(0).
		Body([]byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + metav1.NamespaceSystem + `"}}`)).Do(ctx).Error()
	if ConcernsAll(err) || ConcernsType(err) {
		return fmt.Errorf("checking whether writes are accepted: %w", err)
	}
	return nil
}

// action is the verb and the object of a request, in the terms of RBAC.
type action struct {
	verb      string
	resource  schema.GroupResource
	namespace string
}

// request calls the function do with a bounded context, unless the connection is closed. [connection.close] waits for
// the function. A long error of the function is shortened; see [brief].
func (c *connection) request(ctx context.Context, do func(context.Context) error) error {
	if !c.lifetime.begin() {
		return errLeft
	}
	defer c.lifetime.requests.Done()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ctx, end := c.limits.account.begin(ctx)
	defer end()
	return brief(do(ctx))
}

// read makes a read-only request.
func (c *connection) read(ctx context.Context, a action, do func(context.Context) error) error {
	return c.request(ctx, func(ctx context.Context) error {
		err := do(ctx)
		c.rights.note(a, err)
		return err
	})
}

// write makes a request that changes an object, and reports its result to the breaker.
func (c *connection) write(ctx context.Context, a action, do func(context.Context) error) error {
	return c.request(ctx, func(ctx context.Context) error {
		began := time.Now()
		err := do(ctx)
		c.rights.note(a, err)
		c.breaker.note(writeScope{a.namespace, a.resource}, err)
		c.meter.wrote(a.verb, err, time.Since(began))
		return err
	})
}

// get reads the metadata of an object.
func (c *connection) get(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName) (got *metav1.PartialObjectMetadata, err error) {
	err = c.read(ctx, action{"get", gvr.GroupResource(), name.Namespace}, func(ctx context.Context) (err error) {
		got, err = c.metadata.get(ctx, gvr, name)
		return err
	})
	return got, err
}

// getWhole reads an object.
func (c *connection) getWhole(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName) (got *received, err error) {
	err = c.read(ctx, action{"get", gvr.GroupResource(), name.Namespace}, func(ctx context.Context) (err error) {
		got, err = c.whole.get(ctx, gvr, name)
		return err
	})
	return got, err
}

// list reads one page of the metadata of objects of all namespaces.
func (c *connection) list(ctx context.Context, gvr schema.GroupVersionResource, o metav1.ListOptions) (page *metav1.PartialObjectMetadataList, err error) {
	err = c.read(ctx, action{"list", gvr.GroupResource(), ""}, func(ctx context.Context) (err error) {
		page, err = c.metadata.list(ctx, gvr, "", o)
		return err
	})
	return page, err
}

// patch changes an object, or creates it if the patch is an apply.
func (c *connection) patch(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName, kind types.PatchType,
	body []byte, o metav1.PatchOptions,
) (got *metav1.PartialObjectMetadata, err error) {
	if err := CheckSize(body); err != nil {
		return nil, err
	}
	err = c.write(ctx, action{"patch", gvr.GroupResource(), name.Namespace}, func(ctx context.Context) error {
		got, err = c.metadata.patch(ctx, gvr, name, kind, body, o)
		return c.unserved(ctx, gvr, err)
	})
	return got, err
}

// delete begins the deletion of an object that meets the preconditions. Found is false, without an error, if there is
// no such object.
func (c *connection) delete(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName, only metav1.Preconditions) (
	found bool, err error,
) {
	err = c.write(ctx, action{"delete", gvr.GroupResource(), name.Namespace}, func(ctx context.Context) error {
		err := c.metadata.delete(ctx, gvr, name, only)
		return c.unserved(ctx, gvr, err)
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	return err == nil, err
}
