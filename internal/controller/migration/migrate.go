// Package migration rewrites the objects of a custom resource in one version, so that
// the others can be taken out of its CustomResourceDefinition.
//
// An API server stores an object in the version that was the storage version when the
// object was written last, and the definition remembers in status.storedVersions which
// versions that may be. Run sends for each object a patch that changes nothing: the API
// server then encodes the object anew, writes it if the bytes differ, and writes
// nothing if they do not. Content, generation and managedFields stay as they are.
//
// A version is taken out of status.storedVersions only when a pass over all objects has
// found none that had to be rewritten or was gone, but for those that are known to have
// been left alone since they were looked at; where objects are deleted all the time it
// takes two passes that rewrote nothing. So objects that are created or changed meanwhile are
// no exception, and neither is one that an API server wrote that did not know the new
// storage version yet.
//
// Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/
package migration

import (
	"context"
	"errors"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// What is meant by the errors that Run returns; errors.Is finds them.
var (
	// ErrNoDefinition means that there is no CustomResourceDefinition of that name.
	ErrNoDefinition = errors.New("there is no such CustomResourceDefinition")
	// ErrNoVersion means that the definition does not have the version.
	ErrNoVersion = errors.New("there is no such version")
	// ErrNotServed means that the version is not served, so nothing can be written in it.
	ErrNotServed = errors.New("it is not served")
	// ErrNotStorage means that another version is the one in which objects are stored.
	ErrNotStorage = errors.New("it is not the storage version")
	// ErrNotReady means that the definition is not established, or is being deleted.
	ErrNotReady = errors.New("it is not in service")
	// ErrNotTakenUp means that not every API server that was asked stores in the version,
	// though the definition says so.
	ErrNotTakenUp = errors.New("the API server does not store in it yet")
	// ErrChanged means that the definition was changed during the migration.
	ErrChanged = errors.New("the CustomResourceDefinition was changed during the migration")
	// ErrUnsettled means that pass after pass objects are found that somebody has stored
	// in another version meanwhile.
	ErrUnsettled = errors.New("objects are still being stored in another version")
)

// DefaultSettle is how long an API server is given to learn of a change that others
// know, as Kubernetes itself has it before it serves a new definition.
const DefaultSettle = 5 * time.Second

// Options say what is to be migrated, and how.
type Options struct {
	// Config is the way into the cluster. Its QPS should be -1: what is sent is bounded
	// by Rate. Required.
	Config *rest.Config
	// Name is that of the CustomResourceDefinition. Required.
	Name string
	// To is the version in which all objects are to be stored. Required.
	To string
	// Rate is how many objects are rewritten in a second at most; 0 or less for no bound.
	// Never more than eight are under way at the same time.
	Rate float64
	// DryRun writes nothing: the patches are sent to be judged only.
	DryRun bool
	// Settle is how long each of several looks, each by a connection of its own, must have
	// found that the API server stores in the version; see [DefaultSettle]. 0 is one look.
	Settle time.Duration
	// Confirm is asked before anything is written; not in a dry run. Nil is yes.
	Confirm func(*Plan) (bool, error)
	// Progress, if set, is told how far it is. It is called by one goroutine at a time.
	Progress func(Progress)
}

// Plan is what is about to be done.
type Plan struct {
	// Name of the definition and version to be stored.
	Name, To string
	// Objects is how many there are.
	Objects int
	// Stored are the versions in which they may be stored now.
	Stored []string
	// After is the object after which an interrupted run is continued; empty if this one
	// begins at the first. Continuing says whether there was one.
	After      string
	Continuing bool
}

// Phase is a part of a migration.
type Phase string

// The phases, in their order.
const (
	Waiting   Phase = "Waiting"   // For the API server to store in the version.
	Reading   Phase = "Reading"   // Every object, in the version.
	Rewriting Phase = "Rewriting" // Every object; in a dry run, trying to.
	Verifying Phase = "Verifying" // Those that were written meanwhile.
)

// Progress is how far a phase is.
type Progress struct {
	Phase Phase
	// Done of Total objects; both are 0 while nothing is known.
	Done, Total int
	// Failed is how many objects could not be rewritten, or be read, until now.
	Failed int
}

// migration is one run.
type migration struct {
	Options

	pace       pace
	definition definition
	storage    storage
	metadata   metadata.Interface
	limit      flowcontrol.RateLimiter

	result *Result
	total  int // Of objects, as far as is known.
}

// Run migrates. It returns what came of it even if that is not what was wanted: the
// Outcome tells. It returns an error, and no result, if it could not do its work, or
// ctx ended; what it has rewritten until then stays so, and another run continues
// there.
//
// Running it twice at the same time does no harm: both rewrite, and each verifies for
// itself.
func Run(ctx context.Context, o Options) (*Result, error) {
	m, err := begin(o, usualPace)
	if err != nil {
		return nil, err
	}
	return m.run(ctx)
}

func begin(o Options, p pace) (*migration, error) {
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	d, err := dynamic.NewForConfig(o.Config)
	if err != nil {
		return nil, err
	}
	md, err := metadata.NewForConfig(o.Config)
	if err != nil {
		return nil, err
	}
	discovery, err := rest.UnversionedRESTClientFor(pathwise(o.Config))
	if err != nil {
		return nil, err
	}
	limit := flowcontrol.NewFakeAlwaysRateLimiter()
	if o.Rate > 0 {
		limit = flowcontrol.NewTokenBucketRateLimiter(float32(o.Rate), max(1, min(workers, int(o.Rate))))
	}
	crds := d.Resource(schema.GroupVersionResource{Group: apiextensionsv1.GroupName, Version: "v1", Resource: "customresourcedefinitions"})
	return &migration{
		Options: o, pace: p, metadata: md, limit: limit,
		definition: definition{client: crds, pace: p, name: o.Name},
		storage:    storage{config: o.Config, discovery: discovery, pace: p, to: o.To},
	}, nil
}

func (m *migration) run(ctx context.Context) (*Result, error) {
	began := time.Now()
	if err := m.prepare(ctx); err != nil {
		return nil, err
	}
	m.result = newResult(m)
	err := m.migrate(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // Rather than which request it was that this ended.
	}
	if err != nil {
		return nil, err
	}
	m.result.Seconds = time.Since(began).Round(time.Millisecond).Seconds()
	return m.result, nil
}

// prepare reads the definition, and waits until what it says is done.
func (m *migration) prepare(ctx context.Context) error {
	if err := m.definition.read(ctx); err != nil {
		return err
	}
	if err := judge(m.definition.crd, m.To); err != nil {
		return err
	}
	m.storage.crd = m.definition.crd
	m.Progress(Progress{Phase: Waiting})
	return m.storage.wait(ctx, m.Settle)
}

func (m *migration) migrate(ctx context.Context) error {
	if err := m.survey(ctx); err != nil || m.result.Outcome != "" {
		return err
	}
	var from *mark // A dry run begins at the first: it is to judge all of them.
	if !m.DryRun {
		from = m.definition.interrupted(m.To)
		if m.Confirm != nil {
			yes, err := m.Confirm(m.plan(from))
			if err != nil {
				return err
			}
			if !yes {
				m.result.Outcome = Declined
				return nil
			}
		}
		if from == nil {
			from = &mark{To: m.To, Generation: m.definition.crd.Generation}
		}
		m.result.ContinuedAfter = from.After
		if err := m.definition.save(ctx, from); err != nil {
			return err
		}
	}
	if err := m.rewrite(ctx, from); err != nil || m.result.Outcome != "" {
		return err
	}
	if m.DryRun {
		m.result.Outcome = WouldMigrate
		return nil
	}
	if err := m.storage.wait(ctx, 0); err != nil { // An API server may have come back that knows less.
		return err
	}
	stored, err := m.definition.finish(ctx, m.To)
	if err != nil {
		return err
	}
	m.result.StoredVersionsAfter, m.result.Outcome = stored, Migrated
	return nil
}

func (m *migration) plan(from *mark) *Plan {
	p := &Plan{Name: m.Name, To: m.To, Objects: m.total, Stored: slices.Clone(m.definition.crd.Status.StoredVersions)}
	if from != nil {
		p.After, p.Continuing = from.After, true
	}
	return p
}

// gvr is the resource in one of its versions.
func (m *migration) gvr(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: m.definition.crd.Spec.Group, Version: version, Resource: m.definition.crd.Spec.Names.Plural}
}
