// Package selection decides which pod a request goes to: stages 2 to 4 of a
// request's way.
//
//	Filter  which pods of the role may be picked at all: a few ANDs of bitmaps
//	Score   one number for each candidate; one file a strategy
//	Pick    the highest number; equal numbers are told apart by one fixed rule
//
// Each stage is a pure function over flat arrays that package fleet owns
// (View); none of them locks, allocates, reads a clock or keeps anything. What
// changes from request to request (a rotation's place, a random draw) is an
// argument, so that the same arguments always give the same pod, whatever
// slots the pods happen to live in.
package selection
