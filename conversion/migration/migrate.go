// Package migration rewrites all objects of a custom resource in one version, so that the other versions can be removed
// from its CustomResourceDefinition.
//
// An API server stores an object in the version that was the storage version at the last write of the object. The
// definition lists all such versions in status.storedVersions. Run sends a patch without changes for each object. The
// API server then encodes the object again, and writes it only if the bytes differ. Content, generation and
// managedFields stay unchanged.
//
// Run removes the other versions from status.storedVersions only after a pass over all objects in which no object was
// rewritten and no object turned out to be deleted. An object that has not changed since its last visit is not visited
// again. If there are always some deletions, two passes without a rewrite are required. So no object remains in another
// version: neither an object that was created or changed during the migration, nor one that was written by an API
// server that did not know the new storage version yet.
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

// Errors that Run wraps. Use errors.Is to test for them.
var (
	// ErrNoDefinition means that the CustomResourceDefinition does not exist.
	ErrNoDefinition = errors.New("there is no such CustomResourceDefinition")
	// ErrNoVersion means that the definition does not have the version.
	ErrNoVersion = errors.New("there is no such version")
	// ErrNotServed means that the API server does not serve the version, so it accepts no writes in it.
	ErrNotServed = errors.New("it is not served")
	// ErrNotStorage means that another version is the storage version.
	ErrNotStorage = errors.New("it is not the storage version")
	// ErrNotReady means that the definition is not established, or is being deleted.
	ErrNotReady = errors.New("it is not in service")
	// ErrNotTakenUp means that an API server does not store objects in the version yet, although it is the storage
	// version of the definition.
	ErrNotTakenUp = errors.New("the API server does not store objects in it yet")
	// ErrChanged means that another writer changed the definition during the migration.
	ErrChanged = errors.New("the CustomResourceDefinition was changed during the migration")
	// ErrUnsettled means that each of the allowed passes found objects that other writers had stored in another version
	// since the previous pass.
	ErrUnsettled = errors.New("objects are still being stored in another version")
)

// DefaultSettle is the time after which all API servers know a changed definition. Kubernetes itself waits for the same
// time before it serves a new definition.
const DefaultSettle = 5 * time.Second

// Options describe a migration.
type Options struct {
	// Config is the configuration of the clients. Its QPS should be -1, because Rate already limits the writes.
	// Required.
	Config *rest.Config
	// Name is the name of the CustomResourceDefinition. Required.
	Name string
	// To is the version in which all objects are to be stored. Required.
	To string
	// Rate is the maximum number of rewritten objects per second; 0 or less for no limit. At most eight objects are
	// rewritten at the same time.
	Rate float64
	// DryRun sends the patches as dry runs, and writes nothing.
	DryRun bool
	// Settle is the time for which all discovery requests must report the version as the storage version before the
	// first write; see [DefaultSettle]. 0 means one check.
	Settle time.Duration
	// Confirm is called before the first write, but not in a dry run. The result false ends the migration. A nil
	// Confirm means yes.
	Confirm func(*Plan) (bool, error)
	// Progress, if set, receives the progress. Calls do not overlap.
	Progress func(Progress)
}

// Plan describes a migration before its first write.
type Plan struct {
	// Name is the name of the definition. To is the version in which objects are to be stored.
	Name, To string
	// Objects is the number of objects.
	Objects int
	// Stored are the versions in which objects may be stored before the migration.
	Stored []string
	// After is the last object that an interrupted run has visited; empty if this run starts with the first object.
	// Continuing is true if this run continues an interrupted run.
	After      string
	Continuing bool
}

// Phase is a part of a migration.
type Phase string

// The phases, in their order.
const (
	Waiting   Phase = "Waiting"   // Waits until the API servers store objects in the version.
	Reading   Phase = "Reading"   // Reads every object in the version.
	Rewriting Phase = "Rewriting" // Rewrites every object. In a dry run, tries to.
	Verifying Phase = "Verifying" // Visits the objects that were written since their last visit.
)

// Progress is the progress of a phase.
type Progress struct {
	Phase Phase
	// Done is the number of finished objects, and Total the number of all objects; both are 0 until they are known.
	Done, Total int
	// Failed is the number of objects that could not be read or rewritten so far.
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
	total  int // Number of objects, as far as it is known.
}

// Run migrates all objects. If the migration began but objects could not be migrated or the user declined, Run returns
// a result with another Outcome than Migrated. If the migration could not begin or was interrupted, for example by the
// end of ctx, Run returns an error and no result. Rewritten objects stay rewritten, and a later run continues after
// them.
//
// Two runs at the same time do no harm: both rewrite objects, and each verifies all objects.
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
		err = context.Cause(ctx) // The cause says more than the error of the interrupted request.
	}
	if err != nil {
		return nil, err
	}
	m.result.Seconds = time.Since(began).Round(time.Millisecond).Seconds()
	return m.result, nil
}

// prepare reads the definition, and waits until the API servers store objects in the version.
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
	var from *mark // Nil in a dry run, which starts with the first object because it checks all objects.
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
	if err := m.storage.wait(ctx, 0); err != nil { // A restarted API server may still have an older definition.
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

// gvr returns the resource in this version.
func (m *migration) gvr(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: m.definition.crd.Spec.Group, Version: version, Resource: m.definition.crd.Spec.Names.Plural}
}
