#include "textflag.h"

// CONSTANTS fills Y0 to Y2 with the bytes that a string's bytes are compared
// with: quote, backslash, the last control character.
#define CONSTANTS \
	MOVQ         $0x2222222222222222, AX \
	VMOVQ        AX, X0                  \
	VPBROADCASTQ X0, Y0                  \
	MOVQ         $0x5c5c5c5c5c5c5c5c, AX \
	VMOVQ        AX, X1                  \
	VPBROADCASTQ X1, Y1                  \
	MOVQ         $0x1f1f1f1f1f1f1f1f, AX \
	VMOVQ        AX, X2                  \
	VPBROADCASTQ X2, Y2

// PLAIN sets the bytes of ok to ones where those of x are printable ASCII but
// neither quote nor backslash. As signed bytes only 0x20 to 0x7f are greater
// than 0x1f. t is spoiled.
#define PLAIN(x, ok, t) \
	VPCMPEQB x, Y0, ok \
	VPCMPEQB x, Y1, t  \
	VPOR     ok, t, ok \
	VPCMPGTB Y2, x, t  \
	VPANDN   t, ok, ok

// func indexWide(s []byte) int
// len(s) >= 32
TEXT ·indexWide(SB), NOSPLIT, $0-32
	MOVQ s_base+0(FP), SI
	MOVQ s_len+8(FP), BX
	CONSTANTS
	MOVQ SI, DI
	LEAQ (SI)(BX*1), R8
	LEAQ -64(R8), R9

loop:
	CMPQ      DI, R9
	JA        last
	VMOVDQU   (DI), Y3
	VMOVDQU   32(DI), Y4
	PLAIN(Y3, Y5, Y7)
	PLAIN(Y4, Y6, Y7)
	VPMOVMSKB Y5, AX
	VPMOVMSKB Y6, CX
	SHLQ      $32, CX
	ORQ       CX, AX
	NOTQ      AX
	TESTQ     AX, AX
	JNZ       first
	ADDQ      $64, DI
	JMP       loop

first:
	BSFQ AX, AX
	ADDQ DI, AX
	SUBQ SI, AX
	MOVQ AX, ret+24(FP)
	VZEROUPPER
	RET

	// Less than 64 bytes are left: once the first 32 of them, if there are so
	// many, then the last 32 of all, some of which have been seen.
last:
	LEAQ      -32(R8), R9
	CMPQ      DI, R9
	JA        overlap
	VMOVDQU   (DI), Y3
	PLAIN(Y3, Y5, Y7)
	VPMOVMSKB Y5, AX
	NOTL      AX
	TESTL     AX, AX
	JNZ       first

overlap:
	MOVQ      R9, DI
	VMOVDQU   (DI), Y3
	PLAIN(Y3, Y5, Y7)
	VPMOVMSKB Y5, AX
	NOTL      AX
	TESTL     AX, AX
	JNZ       first
	MOVQ      BX, ret+24(FP)
	VZEROUPPER
	RET

// func copyWide(dst *byte, s []byte) int
// len(s) >= 32, and dst has room for all of s
TEXT ·copyWide(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DX
	MOVQ s_base+8(FP), SI
	MOVQ s_len+16(FP), BX
	CONSTANTS
	SUBQ SI, DX
	MOVQ SI, DI
	LEAQ (SI)(BX*1), R8
	LEAQ -64(R8), R9

loop:
	CMPQ      DI, R9
	JA        last
	VMOVDQU   (DI), Y3
	VMOVDQU   32(DI), Y4
	VMOVDQU   Y3, (DX)(DI*1)
	VMOVDQU   Y4, 32(DX)(DI*1)
	PLAIN(Y3, Y5, Y7)
	PLAIN(Y4, Y6, Y7)
	VPMOVMSKB Y5, AX
	VPMOVMSKB Y6, CX
	SHLQ      $32, CX
	ORQ       CX, AX
	NOTQ      AX
	TESTQ     AX, AX
	JNZ       first
	ADDQ      $64, DI
	JMP       loop

first:
	BSFQ AX, AX
	ADDQ DI, AX
	SUBQ SI, AX
	MOVQ AX, ret+32(FP)
	VZEROUPPER
	RET

last:
	LEAQ      -32(R8), R9
	CMPQ      DI, R9
	JA        overlap
	VMOVDQU   (DI), Y3
	VMOVDQU   Y3, (DX)(DI*1)
	PLAIN(Y3, Y5, Y7)
	VPMOVMSKB Y5, AX
	NOTL      AX
	TESTL     AX, AX
	JNZ       first

overlap:
	MOVQ      R9, DI
	VMOVDQU   (DI), Y3
	VMOVDQU   Y3, (DX)(DI*1)
	PLAIN(Y3, Y5, Y7)
	VPMOVMSKB Y5, AX
	NOTL      AX
	TESTL     AX, AX
	JNZ       first
	MOVQ      BX, ret+32(FP)
	VZEROUPPER
	RET
