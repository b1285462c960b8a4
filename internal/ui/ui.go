// Package ui shows a fleet in a browser: the content of each object on each cluster, the author of each line, the
// effect of a policy, and the effect of a change. The content comes from files or from a hub. Some pages can be written
// to one file that needs no server.
//
// The package writes nothing to the hub or to members. Pages show names and values of objects as plain text, and never
// show values of Secrets.
package ui

import (
	"time"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/lint"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/preview"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/status"
)

// Snapshot is the state of a fleet at one moment. It is immutable.
type Snapshot struct {
	// Origin describes the source of the snapshot.
	Origin string
	// Live is true if a hub reports the state of clusters. With files there are no reports.
	Live bool

	set        *manifest.Set
	documents  []manifest.Document // CustomResourceDefinitions and ConversionPolicies.
	problems   []*manifest.Problem
	evaluation *render.Evaluation
	unread     string // The error if the hub's CustomResourceDefinitions could not be read; otherwise empty.
	findings   *lint.Result
	pods       *preview.Evaluation
	statuses   []*status.Object
	members    []corev1alpha1.FederatedCluster
	intended   *matrix // The desired state.
	fleet      *matrix
	at         time.Time
}

// Input is the content of a snapshot.
type Input struct {
	Origin   string
	Set      *manifest.Set
	Problems []*manifest.Problem
	// Documents has CustomResourceDefinitions and ConversionPolicies, and maybe other objects.
	Documents []manifest.Document
	// ConversionsUnread is the reason why the hub's CustomResourceDefinitions and ConversionPolicies could not be read;
	// empty if they were read.
	ConversionsUnread string
	// Live is true if Statuses and Members come from a hub.
	Live     bool
	Statuses []*status.Object
	Members  []corev1alpha1.FederatedCluster
	// Now is the present time.
	Now time.Time
}

// NewSnapshot computes the state of the fleet. It returns an error if the clusters are not known.
func NewSnapshot(in *Input) (*Snapshot, error) {
	evaluation, err := render.Evaluate(in.Set, render.Options{})
	if err != nil {
		return nil, err
	}
	s := &Snapshot{
		Origin: in.Origin, Live: in.Live, set: in.Set, problems: in.Problems, documents: in.Documents, unread: in.ConversionsUnread, evaluation: evaluation,
		findings: lint.Lint(in.Set, in.Problems), pods: preview.Evaluate(in.Set), intended: newMatrix(evaluation),
	}
	return s.With(in.Statuses, in.Members, in.Now), nil
}

// With returns the snapshot with newer reports about the clusters.
func (s *Snapshot) With(statuses []*status.Object, members []corev1alpha1.FederatedCluster, now time.Time) *Snapshot {
	is := *s
	is.statuses, is.members, is.at = status.NewObjects(statuses).Objects, members, now
	is.fleet = s.intended.with(is.statuses, is.Live)
	return &is
}
