package index

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"unsafe"
)

// mirror is what the index believes one pod's cache to hold, in order of use.
//
// It is a doubly linked list from the oldest to the newest node. A node is an
// entry (a block) or a mark: a mark bears a tick, and all entries between it and
// the next mark were last used at that tick. So an entry needs no time of its
// own: 10 bytes for its block and two links of 24 bits, and 4.9 to 6.2 bytes in
// the look-up from block to entry. (A timestamp in each entry would cost 4 bytes
// more, and a write for each touch.)
//
// A registration touches its chain from tail to head. The blocks of a chain that
// were registered together therefore lie side by side in the list, and mostly
// in memory, too: each is found by looking at the neighbour of the one before,
// and the whole run is moved to the newest end with one splice. The look-up is
// needed only where a chain leaves another one.
//
// Invariants: the oldest node is a mark, no two marks are neighbours, ticks grow
// towards the newest end; the newest mark alone may have no entries after it.
// mu guards all but the atomics, which are written under it.
type mirror struct {
	mu       sync.Mutex
	capacity atomic.Int64  // entries at most
	count    atomic.Int64  // entries, published
	tail     atomic.Uint32 // tick of the oldest entry | markFlag, published; 0 if there is none

	n        uint32 // entries
	promised uint32 // entries of these that are promised only (promise.go)
	marks    uint32
	oldest   uint32
	newest   uint32
	mark     uint32 // the newest mark
	used     uint32 // nodes ever used; node 0 is none
	freeAt   uint32 // queue of free nodes: first, last
	freeTo   uint32
	nodes    []*nodes
	lookup   lookup
	warmed   uint64 // keeps the loads of warm alive
	_        [40]byte
}

// node is a node of the list, packed: in bytes 0 to 3 its word, in 4 to 6 the
// number of the older neighbour, in 7 to 9 that of the newer one.
type node [10]byte

func (n *node) word() uint32 { return binary.LittleEndian.Uint32(n[0:4]) }

func (n *node) setWord(w uint32) { binary.LittleEndian.PutUint32(n[0:4], w) }

func (n *node) older() uint32 { return binary.LittleEndian.Uint32(n[3:7]) >> 8 }

func (n *node) newer() uint32 { return binary.LittleEndian.Uint32(n[6:10]) >> 8 }

func (n *node) setOlder(e uint32) {
	binary.LittleEndian.PutUint16(n[4:6], uint16(e))
	n[6] = uint8(e >> 16)
}

func (n *node) setNewer(e uint32) {
	binary.LittleEndian.PutUint16(n[7:9], uint16(e))
	n[9] = uint8(e >> 16)
}

// nodes is the unit in which nodes are allocated.
type nodes [nodesLen]node

const (
	nodesLen   = 512
	nodesBytes = int64(unsafe.Sizeof(nodes{}))

	// A word is an entry's block id, perhaps with promisedFlag, or a mark's tick
	// with markFlag.
	markFlag     = 1 << 31
	promisedFlag = 1 << 30

	// maxEntries is the largest capacity of a mirror, overdraft what promises may
	// add to it, MaxChain the longest registration: with 2^19 for marks, nodes have
	// numbers of 24 bits.
	maxEntries = 15 << 20
)

func (m *mirror) node(e uint32) *node { return &m.nodes[e/nodesLen][e%nodesLen] }

// link makes a and b neighbours; either may be 0 for the end of the list.
func (m *mirror) link(a, b uint32) {
	if a != 0 {
		m.node(a).setNewer(b)
	} else {
		m.oldest = b
	}
	if b != 0 {
		m.node(b).setOlder(a)
	} else {
		m.newest = a
	}
}

// alloc returns a node for the word; its links are the caller's affair. Free
// nodes are used again in the order in which they became free, which is the
// order of the list, so that neighbours stay neighbours in memory.
func (m *mirror) alloc(x *Index, word uint32) uint32 {
	e := m.freeAt
	if e != 0 {
		m.freeAt = m.node(e).newer()
	} else {
		m.used++
		e = m.used
		if int(e/nodesLen) == len(m.nodes) {
			m.nodes = append(m.nodes, new(nodes))
			x.bytes.Add(nodesBytes + 8)
		}
	}
	m.node(e).setWord(word)
	return e
}

// release frees a node. Its word stays free of what could be taken for an entry.
func (m *mirror) release(e uint32) {
	m.node(e).setWord(markFlag)
	m.node(e).setNewer(0)
	if m.freeAt == 0 {
		m.freeAt = e
	} else {
		m.node(m.freeTo).setNewer(e)
	}
	m.freeTo = e
}

// begin makes tick the time of what is touched from now on and returns it; if
// the mirror has already seen a later one, that goes on.
func (m *mirror) begin(x *Index, tick uint32) uint32 {
	switch {
	case m.mark == 0:
	case age(tick, m.node(m.mark).word()) == 0:
		return m.node(m.mark).word() & tickMask
	case m.mark == m.newest:
		m.node(m.mark).setWord(tick | markFlag)
		return tick
	}
	m.mark = m.alloc(x, tick|markFlag)
	m.marks++
	m.link(m.newest, m.mark)
	m.link(m.mark, 0)
	return tick
}

// insert adds an entry at the newest end and returns it; flag is promisedFlag or 0.
func (m *mirror) insert(x *Index, id, flag uint32) uint32 {
	e := m.alloc(x, id|flag)
	m.promised += flag / promisedFlag
	m.link(m.newest, e)
	m.link(e, 0)
	m.enter(x, id, e)
	m.n++
	return e
}

// renew moves the run of neighbours from a to b to the newest end; 0, 0 is an
// empty run.
func (m *mirror) renew(a, b uint32) {
	if b == m.newest || b == 0 {
		return
	}
	m.cut(a, b)
	m.link(m.newest, a)
	m.link(b, 0)
}

// cut takes the run from a to b out of the list, and with it the mark before
// it if that has no entries left.
func (m *mirror) cut(a, b uint32) {
	o, n := m.node(a).older(), m.node(b).newer()
	if n != 0 && m.node(o).word()&m.node(n).word()&markFlag != 0 {
		mark := o
		o = m.node(o).older()
		m.release(mark)
		m.marks--
	}
	m.link(o, n)
}

// remove forgets an entry.
func (m *mirror) remove(x *Index, e uint32) {
	m.leave(x, m.node(e).word()&idMask, e)
	m.promised -= m.node(e).word() & promisedFlag / promisedFlag
	m.cut(e, e)
	m.release(e)
	m.n--
}

// publish shows to the outside what the mirror holds now. It ends each hold of
// mu that changed something.
func (m *mirror) publish(x *Index) {
	if m.n == 0 && m.used > nodesLen {
		m.drop(x)
	}
	var tail uint32
	if m.n != 0 {
		tail = m.node(m.oldest).word()
	}
	if tail != m.tail.Load() {
		m.tail.Store(tail)
	}
	if n := int64(m.n); n != m.count.Load() {
		m.count.Store(n)
	}
}

// drop gives back the memory of an empty mirror.
func (m *mirror) drop(x *Index) {
	x.bytes.Add(-int64(len(m.nodes))*(nodesBytes+8) - m.lookup.bytes())
	m.nodes, m.lookup = nil, lookup{}
	m.marks, m.oldest, m.newest, m.mark = 0, 0, 0, 0
	m.used, m.freeAt, m.freeTo = 0, 0, 0
}
