// Package ui shows a fleet in a browser: which object has which content on which cluster, who
// made each line of it what it is, what a policy does and what it would do if it were another. The same
// pages are made of files and of a hub, and what belongs to one change fits into one file that needs
// nothing else.
//
// It writes nothing, neither on the hub nor on a member. Names and values of objects are text, whatever they
// hold; the values of Secrets are shown nowhere.
package ui

import (
	"time"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/offline/lint"
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/preview"
	"refract.dev/internal/offline/render"
	"refract.dev/internal/status"
)

// Snapshot is what there is at one moment. It is not modified once it was made.
type Snapshot struct {
	// Origin says in words where it was read.
	Origin string
	// Live is whether a hub says what is on clusters. Of files it is not known.
	Live bool

	set        *manifest.Set
	documents  []manifest.Document // Definitions and how they are converted.
	problems   []*manifest.Problem
	evaluation *render.Evaluation
	unread     string // Why definitions of a hub could not be read.
	findings   *lint.Result
	pods       *preview.Evaluation
	statuses   []*status.Object
	members    []corev1alpha1.FederatedCluster
	intended   *matrix // What is to be.
	fleet      *matrix
	at         time.Time
}

// Input is what a snapshot is made of.
type Input struct {
	Origin   string
	Set      *manifest.Set
	Problems []*manifest.Problem
	// Documents are those among which CustomResourceDefinitions and ConversionPolicies are.
	Documents []manifest.Document
	// ConversionsUnread says why what a hub has of them could not be read; empty if it could.
	ConversionsUnread string
	// Live is whether the rest is known, as a hub says it.
	Live     bool
	Statuses []*status.Object
	Members  []corev1alpha1.FederatedCluster
	// Now is the time.
	Now time.Time
}

// NewSnapshot evaluates what was read. It is an error if it is not known which clusters there are.
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

// With returns the snapshot with what a hub says now of what is on clusters.
func (s *Snapshot) With(statuses []*status.Object, members []corev1alpha1.FederatedCluster, now time.Time) *Snapshot {
	is := *s
	is.statuses, is.members, is.at = status.NewObjects(statuses).Objects, members, now
	is.fleet = s.intended.with(is.statuses, is.Live)
	return &is
}
